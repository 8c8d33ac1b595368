"""The csv of mixtures: what is read, what is refused, what is written."""

import pytest

from convtasnet.data.manifest import Manifest, Row

HEADER = "mixture_ID,mixture_path,source_1_path,source_2_path,length\n"


def written(folder, text, name="train.csv", encoding="utf-8"):
    (folder / name).write_text(text, encoding=encoding)
    return folder / name


def test_relative_absolute_spaces_and_letters(tmp_path, monkeypatch):
    (tmp_path / "Metadaten é").mkdir()
    path = written(
        tmp_path / "Metadaten é",
        HEADER + 'a,../mix/größe 1.wav,/data/s1.wav,"s2/with, comma.wav",8000\n',
    )
    monkeypatch.chdir("/")
    row = Manifest.from_csv(path)[0]
    assert row.mixture == str(tmp_path / "mix" / "größe 1.wav")
    assert row.sources == (
        "/data/s1.wav",
        str(tmp_path / "Metadaten é" / "s2" / "with, comma.wav"),
    )
    assert (row.id, row.length, row.noise) == ("a", 8000, None)
    monkeypatch.chdir(tmp_path)
    assert Manifest.from_csv("Metadaten é/train.csv").rows == [row]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_byte_order_mark_and_line_ends(tmp_path, encoding, newline):
    text = (HEADER + "ä,m.wav,a.wav,b.wav,10\n").replace("\n", newline)
    manifest = Manifest.from_csv(written(tmp_path, text, encoding=encoding))
    assert [row.id for row in manifest] == ["ä"]


def test_order_of_columns_and_other_columns_do_not_matter(tmp_path):
    path = written(
        tmp_path,
        "length,gain,source_3_path,source_1_path,mixture_ID,source_2_path,noise_path,mixture_path\n"
        "7,0.5,c.wav,a.wav,x,b.wav,n.wav,m.wav\n",
    )
    row = Manifest.from_csv(path, n_src=3)[0]
    assert [name.rsplit("/", 1)[-1] for name in row.sources] == ["a.wav", "b.wav", "c.wav"]
    assert row.noise == str(tmp_path / "n.wav")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        (HEADER, "no mixtures"),
        ("mixture_ID,mix,source_1_path\n", r"\['mixture_path', 'length'\] are missing, found are"),
        ("mixture_ID,mixture_path,length\n", r"\['source_1_path'\] are missing"),
        (
            "mixture_ID,mixture_path,source_1_path,source_3_path,length\n",
            r"\['source_2_path'\] are missing",
        ),
        (HEADER + "a,m,a,b,10\na,m,a,b,10\n", "1 mixture IDs occur more than once: a"),
        (HEADER + "a,m,a,b,ten\n", "line 2: length is 'ten'"),
        (HEADER + "a,m,a,b,0\n", "line 2: length is '0'"),
        (HEADER + "a,m,a,b,-5\n", "length is '-5'"),
        (HEADER + "a,m,a,b,1.5\n", "length is '1.5'"),
        (HEADER + "a,m,a,b,10\nb,m,a\n", "line 3: no length"),
        (HEADER + "a,m,,b,10\n", "line 2: no source_1_path"),
        (HEADER + "a,m,a,b,10,c\n", "line 2: more fields than columns"),
    ],
)
def test_faults_are_named_with_the_file(tmp_path, text, words):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=words) as error:
        Manifest.from_csv(path)
    assert str(path) in str(error.value)


def test_another_number_of_sources_is_refused(tmp_path):
    path = written(tmp_path, HEADER + "a,m,a,b,10\n")
    with pytest.raises(ValueError, match="has 2 sources a mixture, n_src is 3"):
        Manifest.from_csv(path, n_src=3)
    with pytest.raises(ValueError, match="the first is 'x' with 1"):
        Manifest([Row("x", "m", ("a",))], n_src=2)


def test_text_in_another_encoding_is_refused(tmp_path):
    path = written(tmp_path, HEADER + "größe,m,a,b,10\n", encoding="latin-1")
    with pytest.raises(ValueError, match="not UTF-8"):
        Manifest.from_csv(path)


def test_missing_file_is_named_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as error:
        Manifest.from_csv("gone.csv")
    assert str(tmp_path / "gone.csv") in str(error.value)


@pytest.mark.parametrize("noise", [None, "noise/n.wav"])
def test_written_manifest_reads_back_and_moves_with_its_folder(tmp_path, noise):
    old = tmp_path / "old"
    rows = [
        Row(
            f"é {i}",
            str(old / f"mix/{i}.wav"),
            (str(old / f"s1/{i}.wav"), f"/elsewhere/{i}.wav"),
            noise and str(old / noise),
            100 + i,
        )
        for i in range(3)
    ]
    Manifest(rows).to_csv(old / "train.csv")
    assert Manifest.from_csv(old / "train.csv").rows == rows
    old.rename(tmp_path / "new")
    moved = Manifest.from_csv(tmp_path / "new" / "train.csv")
    assert moved[1].mixture == str(tmp_path / "new" / "mix/1.wav")
    assert moved[1].sources[1] == "/elsewhere/1.wav"


def test_unknown_length_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="'a'"):
        Manifest([Row("a", "m", ("s",))]).to_csv(tmp_path / "x.csv")
    assert list(tmp_path.iterdir()) == []
