"""Lists of other toolkits give the rows that a csv gives; every fault names its file and line."""

import json
import logging
from pathlib import Path

import pytest
import torch

from convtasnet.audio import write_audio
from convtasnet.data.manifest import Manifest, Row
from convtasnet.data.module import ManifestData
from convtasnet.data.stored import stored_data

IDS = ["größe 1", "b", "a"]


pytestmark = pytest.mark.usefixtures("empty_cache")


def write_json(folder, name, entries):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(entries, indent=4, ensure_ascii=False), "utf-8")


def write_scp(folder, name, pairs):
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{key} {path}\n" for key, path in pairs)
    (folder / f"{name}.scp").write_text(text, "utf-8")


def entries(kind, ids=IDS, length=800):
    return [[f"/data/{kind}/{name}.wav", length] for name in ids]


def write_jsons(folder, n_src=2):
    """Each list in another order, as a listing of a folder may be."""
    write_json(folder, "mix", entries("mix"))
    for k in range(n_src):
        write_json(folder, f"s{k + 1}", entries(f"s{k + 1}", sorted(IDS, reverse=k % 2 == 0)))


def expected(n_src=2, length=800):
    return [
        Row(
            name,
            f"/data/mix/{name}.wav",
            tuple(f"/data/s{k + 1}/{name}.wav" for k in range(n_src)),
            None,
            length,
        )
        for name in IDS
    ]


def test_json_lists_are_paired_by_name(tmp_path):
    write_jsons(tmp_path, 3)
    manifest = Manifest.read(tmp_path, 3)
    assert manifest.rows == expected(3)
    assert manifest[1].place == f"{tmp_path / 'mix.json'}, entry 2"
    files = [tmp_path / f"{name}.json" for name in ("mix", "s1", "s2", "s3")]
    assert Manifest.read(files).rows == Manifest.read(files[0]).rows == manifest.rows


def test_named_lists_may_have_any_name_and_order(tmp_path):
    write_json(tmp_path, "x", entries("mix"))
    write_json(tmp_path / "y", "second", entries("s1"))
    write_json(tmp_path, "first", entries("s2"))
    files = [tmp_path / "x.json", tmp_path / "first.json", tmp_path / "y/second.json"]
    assert Manifest.read(files)[0].sources == ("/data/s2/größe 1.wav", "/data/s1/größe 1.wav")


def test_names_below_folders_are_ids(tmp_path):
    for kind in ("mix", "s1", "s2"):
        paths = [f"/data/{kind}/{part}/a.wav" for part in ("x", "y")]
        write_json(tmp_path, kind, [[path, 9] for path in paths])
    assert [row.id for row in Manifest.read(tmp_path)] == ["x/a", "y/a"]


def test_the_mixture_of_asteroid_has_several_names(tmp_path):
    write_jsons(tmp_path)
    (tmp_path / "mix.json").rename(tmp_path / "mix_both.json")
    write_json(tmp_path, "noise", entries("noise"))
    assert Manifest.read(tmp_path)[1].noise == "/data/noise/b.wav"
    write_json(tmp_path, "mix_clean", entries("mix_clean"))
    with pytest.raises(ValueError, match=r"\['mix_both', 'mix_clean'\] could all be the mixtures"):
        Manifest.read(tmp_path)
    assert Manifest.read(tmp_path / "mix_clean.json")[1].mixture == "/data/mix_clean/b.wav"


@pytest.mark.parametrize("mixture", ["mix", "wav"])
@pytest.mark.parametrize("source", ["spk", "s"])
def test_scp_lists(tmp_path, mixture, source):
    write_scp(tmp_path, mixture, [(f"id{i}", f"/my data/mix/ä{i}.wav") for i in range(3)])
    for k in (1, 2):
        pairs = [(f"id{i}", f"/data/s{k}/{7 * i}.wav") for i in reversed(range(3))]
        write_scp(tmp_path, f"{source}{k}", pairs)
    (tmp_path / "utt2spk").write_text("id0 x\n")
    (tmp_path / "utt2num_samples").write_text("id0 800\nid2 900\n")
    manifest = Manifest.read(tmp_path)
    assert manifest.rows == [
        Row(f"id{i}", f"/my data/mix/ä{i}.wav", (f"/data/s1/{7 * i}.wav", f"/data/s2/{7 * i}.wav"))
        if i == 1
        else Row(
            f"id{i}",
            f"/my data/mix/ä{i}.wav",
            (f"/data/s1/{7 * i}.wav", f"/data/s2/{7 * i}.wav"),
            None,
            {0: 800, 2: 900}[i],
        )
        for i in range(3)
    ]


def test_relative_paths_start_at_the_list_or_at_the_root(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    for folder in (tmp_path / "lists", tmp_path / "recipe"):
        for kind in ("mix", "s1", "s2"):
            write_audio(folder / "wavs" / kind / "a.wav", torch.zeros(80), 8000)
    for kind in ("mix", "s1", "s2"):
        write_json(tmp_path / "lists", kind, [[f"wavs/{kind}/a.wav", 80]])
        write_json(tmp_path / "recipe" / "json", kind, [[f"wavs/{kind}/a.wav", 80]])
    beside = Manifest.read(tmp_path / "lists", root=tmp_path / "recipe")
    assert beside[0].mixture == str(tmp_path / "lists/wavs/mix/a.wav")
    above = Manifest.read(tmp_path / "recipe/json", root=tmp_path / "recipe")
    assert above[0].sources[1] == str(tmp_path / "recipe/wavs/s2/a.wav")


def test_names_without_anything_in_common_are_paired_by_position(tmp_path, caplog):
    write_json(tmp_path, "mix", [["/m/mix_1.wav", 10], ["/m/mix_2.wav", 20]])
    for k in (1, 2):
        write_json(tmp_path, f"s{k}", [[f"/m/s{k}_1.wav", 10], [f"/m/s{k}_2.wav", 20]])
    with caplog.at_level(logging.WARNING):
        manifest = Manifest.read(tmp_path)
    assert manifest[1].sources == ("/m/s1_2.wav", "/m/s2_2.wav")
    assert caplog.text.count("paired by position") == 2
    write_json(tmp_path, "s2", [["/m/s2_2.wav", 20], ["/m/s2_1.wav", 10]])
    with pytest.raises(ValueError, match=r"s2\.json, entry 1: .* length 20, .* 10 .*, entry 1"):
        Manifest.read(tmp_path)
    write_json(tmp_path, "s2", [["/m/s2_1.wav", 10]])
    with pytest.raises(ValueError, match=r"s2\.json has 1 entries, .*mix\.json has 2"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("s1.json", "[[", r"s1\.json, line 1: not JSON"),
        ("s1.json", '{"a": 1}', r"s1\.json: expected a list \[\[path, n_samples\], …\], found"),
        ("s1.json", "[]", r"s1\.json: the list is empty"),
        (
            "s1.json",
            '[["/a.wav", 3], "/b.wav"]',
            r"s1\.json, entry 2: expected \[path, n_samples\]",
        ),
        ("s1.json", '[["/a.wav", 1.5]]', r"entry 1: /a\.wav has the length 1\.5, expected a whole"),
        ("s1.json", '[["/a.wav", true]]', "the length true, expected"),
        ("s1.json", '[["/a.wav", 0]]', "the length 0, expected"),
        (
            "mix.json",
            '[["/x/a.wav", 3], ["/x/b.wav", 3], ["/x/a.wav", 3]]',
            r"mix\.json, entry 3: ID 'a' is there already \(entry 1\)",
        ),
        (
            "s2.json",
            '[["/x/a.wav", 800], ["/x/c.wav", 800]]',
            r"s2\.json has 2 entries, .*mix\.json has 3, expected the same IDs in both: it lacks "
            r"the IDs 'größe 1' \(.*mix\.json, entry 1\), 'b' \(.*entry 2\); no mixture has the "
            r"IDs 'c' \(.*s2\.json, entry 2\)",
        ),
        (
            "s1.json",
            json.dumps([["/x/a.wav", 800], ["/x/b.wav", 2000], ["/x/größe 1.wav", 800]]),
            r"s1\.json, entry 2: /x/b\.wav has the length 2000, expected .* 800 \(.*mix\.json, "
            r"entry 2\)",
        ),
    ],
)
def test_faults_of_json_lists(tmp_path, name, content, words):
    write_jsons(tmp_path)
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(ValueError, match=words) as error:
        Manifest.read(tmp_path)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("spk1.scp", "a\n", r"spk1\.scp, line 1: 'a' is not a line 'id path'"),
        ("spk1.scp", "", r"spk1\.scp: the list is empty"),
        ("spk2.scp", "b /b\n\na /a\nb /b\n", r"spk2\.scp, line 4: ID 'b' .* already \(line 1\)"),
        ("spk2.scp", "b /b\n", r"spk2\.scp has 1 entries, .*mix\.scp has 2.*lacks the IDs 'a' \("),
        ("spk2.scp", "c /c\nd /d\n", "expected the same IDs in both"),
        ("mix.scp", "a sph2pipe -f wav a.wv1 |\n", r"mix\.scp, line 1: .* is a command"),
        ("mix.scp", "a /data/raw.ark:1234\n", r"mix\.scp, line 1: .* is a Kaldi archive"),
        ("utt2num_samples", "a 8\nb eight\n", r"utt2num_samples, line 2: length is 'eight'"),
        ("segments", "a-1 a 0 1\n", r"segments: stretches of recordings are not read"),
    ],
)
def test_faults_of_scp_lists(tmp_path, name, content, words):
    for kind in ("mix", "spk1", "spk2"):
        write_scp(tmp_path, kind, [("a", f"/{kind}/1.wav"), ("b", f"/{kind}/2.wav")])
    assert len(Manifest.read(tmp_path)) == 2
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(ValueError, match=words):
        Manifest.read(tmp_path)


def test_which_lists_are_meant(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone/mix\.json: no such list"):
        Manifest.read(tmp_path / "gone" / "mix.json")
    with pytest.raises(ValueError, match=r"no lists; expected mix\.json, s1\.json"):
        Manifest.read(tmp_path)
    write_jsons(tmp_path)
    with pytest.raises(ValueError, match="has 2 sources a mixture, n_src is 3; their lists are s1"):
        Manifest.read(tmp_path, 3)
    with pytest.raises(ValueError, match=r"train\.csv is neither JSON nor scp"):
        Manifest.read([tmp_path / "mix.json", tmp_path / "train.csv"])
    with pytest.raises(ValueError, match="1 files named: expected the list of the mixtures"):
        Manifest.read([tmp_path / "mix.json"])
    with pytest.raises(FileNotFoundError, match=r"s3\.json: no such list"):
        Manifest.read([tmp_path / "mix.json", tmp_path / "s3.json"])
    (tmp_path / "s2.json").rename(tmp_path / "s3.json")
    with pytest.raises(ValueError, match=r"\['s2'\] missing beside \['s1', 's3'\]"):
        Manifest.read(tmp_path)
    write_scp(tmp_path, "mix", [("a", "a.wav")])
    with pytest.raises(ValueError, match="JSON and scp lists: name that of the mixtures"):
        Manifest.read(tmp_path)
    (tmp_path / "s1.json").unlink()
    (tmp_path / "s3.json").unlink()
    with pytest.raises(ValueError, match=r"no sources, expected the names s1, s2, …; found are"):
        Manifest.read(tmp_path / "mix.json")


def test_text_in_another_encoding(tmp_path):
    write_jsons(tmp_path)
    (tmp_path / "s1.json").write_bytes('[["größe", 3]]'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"s1\.json: not UTF-8"):
        Manifest.read(tmp_path)


def corpus(root: Path, ids: list[str], length: int = 4000) -> None:
    generator = torch.Generator().manual_seed(0)
    for name in ids:
        sources = 0.1 * torch.randn(2, length, generator=generator)
        write_audio(root / "mix" / f"{name}.wav", sources.sum(0), 8000, "FLOAT")
        write_audio(root / "s1" / f"{name}.wav", sources[0], 8000, "FLOAT")
        write_audio(root / "s2" / f"{name}.wav", sources[1], 8000, "FLOAT")


def test_data_of_all_kinds_of_lists_are_the_same(tmp_path):
    corpus(tmp_path, IDS)
    kinds = ("mix", "s1", "s2")
    rows = []
    for name in IDS:
        mixture, *sources = (str(tmp_path / kind / f"{name}.wav") for kind in kinds)
        rows.append(Row(name, mixture, tuple(sources), None, 4000))
    Manifest(rows).to_csv(tmp_path / "train.csv")
    for k, kind in enumerate(kinds):
        paths = [(row.mixture, *row.sources)[k] for row in rows]
        write_json(tmp_path / "json", kind, [[path, 4000] for path in sorted(paths)])
        numbered = [(f"{i}", path) for i, path in enumerate(paths)]
        write_scp(tmp_path / "scp", kind, reversed(numbered))
    named = [f"json/{kind}.json" for kind in kinds]
    data = ManifestData(tmp_path, train="json", valid="scp", test=named, num_workers=0)
    data.check()
    csv = ManifestData(tmp_path).dataset("train")
    wanted = {tuple(csv.item(0, i)["mixture"][:5].tolist()) for i in range(3)}
    for split in ("valid", "test"):
        items = [data.dataset(split)[i] for i in range(3)]
        for item in items:
            assert torch.allclose(item["mixture"], item["sources"].sum(0), atol=1e-6)
        assert len({tuple(item["mixture"][:5].tolist()) for item in items} | wanted) == 3
    assert data.dataset("test")[0]["id"] == "a"


def test_a_list_of_other_lengths_than_its_files_is_refused_at_the_start(tmp_path):
    corpus(tmp_path, IDS)
    for kind in ("mix", "s1", "s2"):
        paths = [str(tmp_path / kind / f"{name}.wav") for name in IDS]
        write_json(tmp_path, kind, [[path, 2000] for path in paths])
    with pytest.raises(ValueError, match="3 problems") as error:
        ManifestData(tmp_path, train=".").check(["train"])
    told = f"has 4000 samples at 8000 Hz, but {tmp_path / 'mix.json'}, entry 2 says 2000"
    assert told in str(error.value)


def test_a_checkpoint_may_name_lists_and_nothing_that_is_built():
    data = {"_target_": "convtasnet.data.module.ManifestData", "train": ["mix.json", "s1.json"]}
    assert stored_data({"data": data}, "x.ckpt") == data
    data["train"] = ["mix.json", {"_target_": "os.getcwd"}]
    with pytest.raises(ValueError, match=r"no plain values: \['train'\]"):
        stored_data({"data": data}, "x.ckpt")
