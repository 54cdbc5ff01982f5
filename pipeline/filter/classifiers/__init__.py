"""fastText classifiers: models found, checked and loaded (`fasttext_model.py`, `model_file.py`), documents scored (`scores.py`);
classifiers trained, evaluated and described in a model card (`training.py`, `building.py`)."""
