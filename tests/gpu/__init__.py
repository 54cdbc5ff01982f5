"""Ten checks of the trainer on a CUDA device, which also run on stand-ins for one: `checks` needs torch and numpy alone, so that
`python -m bench.train_gpu` runs them on a bare machine; `test_on_cuda` is skipped where there is no device."""
