"""Small corpora whose speech may be in a device's memory, and batches of it."""

import torch
from tiny_corpus import RATE, voice

from convtasnet.audio import write_audio
from convtasnet.data.manifest import Manifest, Row
from convtasnet.data.module import ManifestData
from convtasnet.data.speakers import SpeakersData

N_SPEAKERS = 11
SEGMENT = 0.5


def write_speakers(root, rate=RATE, subtype="PCM_16"):
    """Speakers of one to three utterances, shorter and longer than a segment, some mostly quiet."""
    for k in range(N_SPEAKERS):
        for j in range(1 + k % 3):
            wav = voice(10 * k + j, 0.35 + 0.4 * j + 0.1 * k) * (1 + k)
            wav[len(wav) // 4 :] *= 0.03 if k % 2 else 1
            write_audio(root / f"s{k:02d}" / f"{j}.wav", wav.clamp(-1, 1), rate, subtype)
    return root


def write_mixtures(root, rate=RATE, subtype="PCM_16"):
    for split, count in {"train": 7, "valid": 1, "test": 1}.items():
        rows = []
        for i in range(count):
            sources = [voice(2 * i + k, 0.3 + 0.1 * i) / 2 for k in range(2)]
            files = [root / f"{split}{i}_{name}.wav" for name in ("mix", "s1", "s2")]
            for file, wav in zip(files, [sources[0] + sources[1], *sources], strict=True):
                write_audio(file, wav.clamp(-1, 1), rate, subtype)
            rows.append(Row(f"m{i}", str(files[0]), tuple(map(str, files[1:])), None, len(wav)))
        Manifest(rows).to_csv(root / f"{split}.csv")
    return root


def speakers_data(root, **changes):
    arguments = {"segment": SEGMENT, "batch_size": 3, "num_workers": 0, "epoch_size": 25}
    return SpeakersData(root, **(arguments | changes))


def manifest_data(root, **changes):
    return ManifestData(root, **({"segment": SEGMENT, "batch_size": 2, "num_workers": 0} | changes))


def batches(data):
    return list(data.train_dataloader())


def assert_same(made, read, atol):
    """Two lists of batches differ by rounding at most."""
    assert len(made) == len(read) > 0
    for one, other in zip(made, read, strict=True):
        assert one["ids"] == other["ids"]
        assert torch.equal(one["lengths"].cpu(), other["lengths"])
        assert one.keys() == other.keys()
        for name in one.keys() & {"mixture", "sources", "noise"}:
            assert one[name].dtype == torch.float32
            assert one[name].is_contiguous()
            torch.testing.assert_close(one[name].cpu(), other[name], rtol=0, atol=atol)
