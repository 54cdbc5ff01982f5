"""Text out of a model: keys and values kept between tokens (`cache`), rows that come and go (`engine`), choice of a token
(`sample`), text and stop strings (`text`); `generate` puts them together for a run's checkpoint."""
