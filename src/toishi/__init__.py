"""toishi (砥石, whetstone): post-train a language model with rewards, and see what every step changed."""

__version__ = "0.1.0"
