"""``save_pretrained``, ``from_pretrained`` and ``push_to_hub`` of the model."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, PyTorchModelHubMixin
from torch import nn
from typing_extensions import Self

from convtasnet.checkpoint import Checkpoint, load_weights
from convtasnet.files import renewing
from convtasnet.model_card import model_card
from convtasnet.portable import without_paths, write_portable
from convtasnet.sources import read_model

README = "README.md"


class HubModel(
    PyTorchModelHubMixin,
    library_name="convtasnet",
    pipeline_tag="audio-to-audio",
    tags=["audio", "speech-separation", "source-separation", "conv-tasnet"],
):
    """Base of a model that is saved as, and loaded from, plain data.

    ``save_pretrained(DIR)`` writes ``config.json``, ``model.safetensors`` and, unless there is one,
    a model card ``README.md``; ``push_to_hub("owner/name")``, the hub library's, uploads the same.
    ``model.half().save_pretrained(DIR)`` halves the file.

    Attributes:
        hparams: constructor arguments; the subclass sets it, and the two below, empty.
        training_config: resolved configuration of the training, plain data.
        about: what else is known, plain data, see :mod:`convtasnet.portable`.
    """

    hparams: dict[str, Any]
    training_config: dict[str, Any]
    about: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse unknown arguments with the known ones, wherever they come from."""
        known = [name for name in signature(cls.__init__).parameters if name != "self"]
        unknown = [name for name in kwargs if name not in known]
        if unknown:
            raise ValueError(
                f"{cls.__name__} has no argument {', '.join(unknown)}; it has {', '.join(known)}"
            )
        return super().__new__(cls, *args, **kwargs)

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls,
        source: str | PathLike[str],
        hparams: Mapping[str, Any] | None = None,
        **hub_options: Any,
    ) -> Self:
        """Load a model.

        Args:
            source: a folder from ``save_pretrained``, a training checkpoint (``.ckpt``), a model
                of the Hugging Face hub ("owner/name"), or a checkpoint of asteroid, torchaudio,
                SpeechBrain (its CKPT folder) or kaituoxu/Conv-TasNet.
            hparams: what another toolkit's file does not hold, in that toolkit's own names.
            hub_options: ``revision``, ``token``, ``cache_dir``, ``force_download``,
                ``local_files_only``.

        Returns:
            The model in eval mode, on the CPU, in float32, wherever and however it was stored.

        Raises:
            FileNotFoundError: there is neither such a file nor such a model on the hub.
            ValueError: it is no checkpoint, is damaged or of a newer format; its weights do not
                fit (the message lists the first keys that differ); or hyper-parameters are missing
                (the message names all), unknown or contradict the file; or an option is unknown.
        """
        return cls.from_checkpoint(read_model(source, hparams, **hub_options), str(source))

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, source: str) -> Self:
        """Build the model that a checkpoint describes, in eval mode, on the CPU.

        Args:
            checkpoint: arguments and weights.
            source: where they come from, for messages.

        Raises:
            ValueError: arguments that this version does not know, or weights that do not fit.
        """
        unknown = checkpoint.model_args.keys() - signature(cls).parameters.keys()
        if unknown:
            raise ValueError(
                f"{source} names model arguments that this version does not know: {sorted(unknown)}"
            )
        try:
            model = cls(**checkpoint.model_args)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error
        assert isinstance(model, nn.Module)
        load_weights(model, checkpoint.state_dict, source)
        model.training_config, model.about = checkpoint.config, checkpoint.about
        return model.eval()

    def save_pretrained(
        self,
        save_directory: str | PathLike[str],
        *,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        model_card_kwargs: dict[str, Any] | None = None,
        **hub_options: Any,
    ) -> str | None:
        """Write the model's files into a folder, which is never left without one of them.

        Args:
            save_directory: the folder; is made. Its other files stay, a ``README.md`` too.
            repo_id: "owner/name" for ``push_to_hub``; None takes the folder's name.
            push_to_hub: whether to upload the model after that.
            model_card_kwargs: texts for the model card, see :mod:`convtasnet.portable`.
            hub_options: of ``push_to_hub``.

        Returns:
            The address of the upload, if there is one.

        Raises:
            ValueError: it names no folder, or a file; or weights are NaN or infinite.
            OSError: it cannot be written to.
        """
        if not isinstance(save_directory, str | PathLike) or not str(save_directory).strip():
            raise ValueError(f"save_directory={save_directory!r} names no folder")
        folder = Path(save_directory).absolute()
        with renewing(folder) as temporary:
            if (folder / README).is_file():
                shutil.copy2(folder / README, temporary)
            super().save_pretrained(temporary, model_card_kwargs=model_card_kwargs)
        if not push_to_hub:
            return None
        return self.push_to_hub(
            repo_id or folder.name, model_card_kwargs=model_card_kwargs, **hub_options
        )

    def _save_pretrained(self, save_directory: Path) -> None:
        """Called by ``save_pretrained``, which adds the model card."""
        assert isinstance(self, nn.Module)
        write_portable(
            save_directory, self.hparams, self.state_dict(), self.training_config, self.about
        )

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """The model card of ``self.about``, which ``model_card_kwargs`` can complete."""
        assert isinstance(self, nn.Module)
        parameters = sum(parameter.numel() for parameter in self.parameters())
        about = {**self.about, "card": {**self.about.get("card", {}), **kwargs}}
        card_data = self._hub_mixin_info.model_card_data
        training = without_paths(self.training_config)
        return model_card(card_data, self.hparams, parameters, training, about)
