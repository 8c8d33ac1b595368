"""Lists of mixtures: read, written, drawn."""

import pytest

from convtasnet.data.mixing_list import ListedMixture, draw_lists, read_list, write_list

A, B = "wsj0/si_tr_s/40n/40na010x.wav", "wsj0/si_tr_s/01x/01xo031a.wav"
TRAIN = {f"{s:02d}a": [f"tr/{s:02d}a/{s:02d}a{u}.wav" for u in range(10)] for s in range(6)}
TEST = {f"{s:02d}t": [f"tt/{s:02d}t/{s:02d}t{u}.wav" for u in range(3)] for s in range(3)}


@pytest.mark.parametrize(
    ("gain", "shown"),
    [(1.98573, "1.9857"), (0.0597144, "0.059714"), (0.0, "0"), (-0.0, "0"), (2.5, "2.5")],
)
def test_names_show_five_digits(gain, shown):
    assert ListedMixture((A, B), (gain, 1.0)).name == f"40na010x_{shown}_01xo031a_1"


def test_read(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text(f"{A} 1.9857 {B} -1.9857 \n\n{B} 0 {A} 0\n")
    assert read_list(path, 2) == [
        ListedMixture((A, B), (1.9857, -1.9857)),
        ListedMixture((B, A), (0.0, 0.0)),
    ]


def test_wrong_lines_are_all_named(tmp_path):
    path = tmp_path / "list.txt"
    lines = [f"{A} 1 {B} -1", f"{A} 1 {B}", f"{A} x {B} -1", f"{A} nan {B} 1", f"{A} 1 {A} -1"]
    path.write_text("\n".join([*lines, f"{A} 1.0 {B} -1.00"]))
    with pytest.raises(ValueError, match="list") as error:
        read_list(path, 2)
    assert [line.removeprefix(f"{path}, ") for line in str(error.value).splitlines()] == [
        "line 2: 3 fields, expected 2 times a path and a gain in dB",
        "line 3: gain 'x' is not a number",
        "line 4: gain 'nan' is not a number",
        "line 5: an utterance is mixed with itself",
        "line 6: the same mixture as in line 1",
    ]


def test_many_wrong_lines_are_counted(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("x\n" * 50)
    with pytest.raises(ValueError, match=r"line 20: .*\n… and 30 more wrong lines"):
        read_list(path, 2)


def test_no_list(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such list"):
        read_list(tmp_path / "list.txt", 2)
    (tmp_path / "list.txt").write_text("\n")
    with pytest.raises(ValueError, match="no mixtures"):
        read_list(tmp_path / "list.txt", 2)


@pytest.mark.parametrize("n_src", [2, 3])
def test_drawn_lists(tmp_path, n_src):
    lists = draw_lists(TRAIN, TEST, (200, 20, 9), n_src, seed=1)
    assert [len(lists[split]) for split in ("tr", "cv", "tt")] == [200, 20, 9]
    heard = {split: {p for m in mixtures for p in m.paths} for split, mixtures in lists.items()}
    speakers = {split: {p.split("/")[1] for p in paths} for split, paths in heard.items()}
    assert not heard["tr"] & heard["cv"]
    assert speakers["tr"] == speakers["cv"] == set(TRAIN)
    assert speakers["tt"] == set(TEST)
    for split, mixtures in lists.items():
        for mixture in mixtures:
            assert len({path.split("/")[1] for path in mixture.paths}) == n_src
            assert sum(mixture.gains_db) == 0
            assert 0 <= mixture.gains_db[0] <= 2.5
        assert len({frozenset(mixture.paths) for mixture in mixtures}) == len(mixtures)
        write_list(tmp_path / split, mixtures)
        assert read_list(tmp_path / split, n_src) == mixtures


def test_a_seed_is_a_list():
    first = draw_lists(TRAIN, TEST, (20, 5, 3), 2, seed=0)
    turned = {speaker: names[::-1] for speaker, names in reversed(TRAIN.items())}
    assert draw_lists(turned, TEST, (20, 5, 3), 2, seed=0) == first
    assert draw_lists(TRAIN, TEST, (20, 5, 3), 2, seed=1) != first


def test_more_than_there_are():
    with pytest.raises(ValueError, match=r"tt: n_mixtures=28 .* give only 27 different"):
        draw_lists(TRAIN, TEST, (20, 5, 28), 2, seed=0)
    with pytest.raises(ValueError, match=r"cv: .* 12 utterances of 6 speakers give only 60"):
        draw_lists(TRAIN, TEST, (20, 61, 3), 2, seed=0)


def test_a_speaker_on_both_sides():
    with pytest.raises(ValueError, match="speakers 01t are both"):
        draw_lists({**TRAIN, "01t": ["x"]}, TEST, (1, 1, 1), 2, seed=0)
