"""What a run is (sections.py), and how a recipe is read (reading.py)."""

from toishi.config.models import LoraConfig, ModelConfig, OpenSection, Section, TeacherConfig
from toishi.config.reading import load_config, parse_override
from toishi.config.sections import (
    AnswersConfig,
    CheckpointConfig,
    Config,
    EvaluationConfig,
    HealthConfig,
    OptimizerConfig,
    RecordConfig,
    RewardConfig,
    SamplingConfig,
    TaskConfig,
    TrainConfig,
)

__all__ = [
    "AnswersConfig",
    "CheckpointConfig",
    "Config",
    "EvaluationConfig",
    "HealthConfig",
    "LoraConfig",
    "ModelConfig",
    "OpenSection",
    "OptimizerConfig",
    "RecordConfig",
    "RewardConfig",
    "SamplingConfig",
    "Section",
    "TaskConfig",
    "TeacherConfig",
    "TrainConfig",
    "load_config",
    "parse_override",
]
