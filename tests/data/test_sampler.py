"""Which process reads what."""

import itertools

import numpy as np
import pytest

from convtasnet.data.sampler import EvalSampler, TrainSampler


def test_more_processes_than_items_to_evaluate_are_refused():
    with pytest.raises(ValueError, match="2 items to evaluate are too few for 3 processes"):
        EvalSampler(range(2), None, 4, 3, 0)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_processes_share_items_exactly_once_in_equally_many_batches(world, batch_size):
    for n_items in range(3, 30):
        check_sharing(n_items, world, batch_size)


def check_sharing(n_items, world, batch_size):
    lengths = np.arange(n_items) % 5
    ranks = [EvalSampler(range(n_items), lengths, batch_size, world, r) for r in range(world)]
    items = [index for sampler in ranks for index in sampler]
    assert sorted(items) == list(range(n_items))
    assert len({-(-len(sampler) // sampler.batch_size) for sampler in ranks}) == 1
    train = [TrainSampler(range(n_items), batch_size, 3, world, r) for r in range(world)]
    pairs = list(itertools.chain.from_iterable(train))
    assert len(set(pairs)) == len(pairs) == n_items // world * world


def test_a_resumed_sampler_gives_the_rest_of_its_epoch_and_whole_ones_after():
    whole, resumed = (TrainSampler(range(9), 2, 5, resume=resume) for resume in ((0, 0), (1, 3)))
    for epoch, skipped in ((0, 6), (1, 6), (2, 0)):
        resumed.set_epoch(epoch)
        whole.set_epoch(max(epoch, 1))
        assert list(resumed) == list(whole)[skipped:]
        assert len(resumed) == 9
