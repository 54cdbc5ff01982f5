"""`torchrun --nproc-per-node N -m corpusmill.train CONFIG.yaml`: `corpusmill train` in many processes."""

from __future__ import annotations

from corpusmill.train.commands.train import main

if __name__ == "__main__":
    main()
