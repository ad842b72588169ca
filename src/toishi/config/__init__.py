"""What a run is (sections.py), and how a recipe is read (reading.py)."""

from toishi.config.models import LoraConfig, ModelConfig, OpenSection, Section, TeacherConfig
from toishi.config.reading import explained, load_config, parse_override, read_file
from toishi.config.sections import (
    AnswersConfig,
    CheckpointConfig,
    Config,
    CriticConfig,
    CriticOptimizerConfig,
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
    "CriticConfig",
    "CriticOptimizerConfig",
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
    "explained",
    "load_config",
    "parse_override",
    "read_file",
]
