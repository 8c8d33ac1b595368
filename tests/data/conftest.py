"""A folder of speakers that nobody changes."""

import pytest
from resident_corpus import write_speakers


@pytest.fixture(scope="session")
def speakers(tmp_path_factory):
    """Speakers of one to three utterances."""
    return write_speakers(tmp_path_factory.mktemp("speakers"))
