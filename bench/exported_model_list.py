"""The models of bench/exported_models.py: torchvision's classifiers, small Hugging Face models, and modules of its own.

A Model makes (module, example inputs) by the functions of scripts/export_model.py, with random weights.
"""

import argparse
import dataclasses
import pathlib
import sys
import tempfile
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
for folder in ("scripts", "tests/support", "tests/graph"):
    sys.path.insert(0, str(ROOT / folder))
import export_sources  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
import transformers  # noqa: E402
from check_exported import without_dropout  # noqa: E402
from pattern_models import Orders, Regions, Sizes, TwoInputsShared, UNet, Written, padded  # noqa: E402
from torch import nn  # noqa: E402

VOCABULARY, CLASSES, IMAGE = 100, 10, 64
TEXT = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}
PICTURE = {"image_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
DECODER = TEXT | {"num_key_value_heads": 1, "head_dim": 16}
STAGES = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "image_size": 32, "patch_size": 2}
BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
        "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64, "decoder_start_token_id": 2}
T5 = {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 2, "d_kv": 16, "decoder_start_token_id": 0}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 2, "rotary_dim": 8}
FOUR = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 16, 32], "image_size": 32}
TRANSFORMERS = {
    # Encoders.
    "bert": ("BertForMaskedLM", TEXT),
    "bert_sequence": ("BertForSequenceClassification", TEXT | {"num_labels": 4}),
    "bert_qa": ("BertForQuestionAnswering", TEXT),
    "minilm": ("BertForTokenClassification", TEXT | {"num_labels": 5, "num_hidden_layers": 6, "num_attention_heads": 4}),
    "distilbert": ("DistilBertForSequenceClassification", TEXT | {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}),
    "roberta": ("RobertaForMaskedLM", TEXT),
    "xlm_roberta": ("XLMRobertaForSequenceClassification", TEXT | {"num_labels": 3}),
    "electra": ("ElectraForTokenClassification", TEXT | {"embedding_size": 16, "num_labels": 5}),
    "albert": ("AlbertForMaskedLM", TEXT | {"embedding_size": 16}),
    "deberta": ("DebertaForMaskedLM", TEXT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "deberta_v2": ("DebertaV2ForMaskedLM", TEXT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"],
                                                   "position_buckets": 4, "norm_rel_ebd": "layer_norm"}),
    "mpnet": ("MPNetForMaskedLM", TEXT),
    "modernbert": ("ModernBertForMaskedLM", TEXT | {"cls_token_id": 1, "sep_token_id": 2, "local_attention": 4,
                                                    "num_hidden_layers": 4}),
    "convbert": ("ConvBertForMaskedLM", TEXT | {"embedding_size": 32, "head_ratio": 1}),
    "mobilebert": ("MobileBertForMaskedLM", TEXT | {"embedding_size": 16, "intra_bottleneck_size": 16}),
    "squeezebert": ("SqueezeBertForMaskedLM", TEXT | {"embedding_size": 32}),
    "roformer": ("RoFormerForMaskedLM", TEXT | {"embedding_size": 32}),
    "fnet": ("FNetForMaskedLM", TEXT | {"tpu_short_seq_length": 7}),
    "xlnet": ("XLNetLMHeadModel", TEXT | {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64}),
    # Decoders.
    "gpt2": ("GPT2LMHeadModel", TEXT | GPT),
    "gptj": ("GPTJForCausalLM", TEXT | GPT),
    "codegen": ("CodeGenForCausalLM", TEXT | GPT | {"n_head": 4, "rotary_dim": 4}),
    "gpt_neo": ("GPTNeoForCausalLM", TEXT | {"num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]],
                                             "window_size": 4}),
    "gpt_neox": ("GPTNeoXForCausalLM", TEXT),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", TEXT | GPT),
    "llama": ("LlamaForCausalLM", DECODER),
    "llama_sequence": ("LlamaForSequenceClassification", DECODER | {"num_labels": 3}),
    "mistral": ("MistralForCausalLM", DECODER | {"sliding_window": 6}),
    "qwen2": ("Qwen2ForCausalLM", DECODER),
    "qwen3": ("Qwen3ForCausalLM", DECODER),
    "phi": ("PhiForCausalLM", TEXT),
    "phi3": ("Phi3ForCausalLM", DECODER),
    "gemma": ("GemmaForCausalLM", DECODER),
    "gemma2": ("Gemma2ForCausalLM", DECODER | {"sliding_window": 6}),
    "gemma3": ("Gemma3ForCausalLM", DECODER | {"sliding_window": 6}),
    "opt": ("OPTForCausalLM", TEXT | {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "bloom": ("BloomForCausalLM", TEXT | {"n_layer": 2, "n_head": 2}),
    "mpt": ("MptForCausalLM", TEXT | {"d_model": 32, "n_layers": 2, "n_heads": 2}),
    "falcon": ("FalconForCausalLM", TEXT),
    "falcon_alibi": ("FalconForCausalLM", TEXT | {"alibi": True, "parallel_attn": False, "bias": True}),
    "stablelm": ("StableLmForCausalLM", DECODER),
    "cohere": ("CohereForCausalLM", DECODER),
    "olmo2": ("Olmo2ForCausalLM", DECODER),
    "granite": ("GraniteForCausalLM", DECODER),
    "starcoder2": ("Starcoder2ForCausalLM", DECODER),
    "persimmon": ("PersimmonForCausalLM", TEXT),
    "biogpt": ("BioGptForCausalLM", TEXT),
    "glm": ("GlmForCausalLM", DECODER),
    "nemotron": ("NemotronForCausalLM", DECODER),
    "smollm3": ("SmolLM3ForCausalLM", DECODER),
    "mamba": ("MambaForCausalLM", TEXT | {"state_size": 4}),
    "mixtral": ("MixtralForCausalLM", DECODER | {"num_local_experts": 4}),
    # Encoders with decoders.
    "t5": ("T5ForConditionalGeneration", TEXT | T5),
    "mt5": ("MT5ForConditionalGeneration", TEXT | T5),
    "bart": ("BartForConditionalGeneration", TEXT | BART),
    "mbart": ("MBartForConditionalGeneration", TEXT | BART),
    "pegasus": ("PegasusForConditionalGeneration", TEXT | BART),
    "blenderbot": ("BlenderbotForConditionalGeneration", TEXT | BART),
    # Vision.
    "hf_vit": ("ViTForImageClassification", PICTURE | {"patch_size": 8}),
    "hf_deit": ("DeiTForImageClassification", PICTURE | {"patch_size": 8}),
    "hf_beit": ("BeitForImageClassification", PICTURE | {"patch_size": 8, "use_relative_position_bias": True}),
    "hf_dinov2": ("Dinov2ForImageClassification", PICTURE | {"patch_size": 8}),
    "hf_swin": ("SwinForImageClassification", STAGES),
    "hf_swinv2": ("Swinv2ForImageClassification", STAGES),
    "hf_convnext": ("ConvNextForImageClassification", FOUR),
    "hf_convnextv2": ("ConvNextV2ForImageClassification", FOUR),
    "hf_resnet": ("ResNetForImageClassification", FOUR | {"embedding_size": 8, "layer_type": "basic"}),
    "hf_regnet": ("RegNetForImageClassification", FOUR | {"embedding_size": 8, "groups_width": 8}),
    "hf_mobilenet_v1": ("MobileNetV1ForImageClassification", {"image_size": 32, "depth_multiplier": 0.25}),
    "hf_mobilenet_v2": ("MobileNetV2ForImageClassification", {"image_size": 32, "depth_multiplier": 0.25}),
    "hf_mobilevit": ("MobileViTForImageClassification",
                     {"image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": 2,
                      "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32]}),
    "hf_segformer": ("SegformerForImageClassification",
                     {"image_size": 64, "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1],
                      "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 16}),
    "hf_poolformer": ("PoolFormerForImageClassification", FOUR | {"image_size": 64}),
    "hf_levit": ("LevitForImageClassification",
                 {"image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [1, 2, 2], "depths": [1, 1, 1],
                  "key_dim": [8, 8, 8]}),
}


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    source: str  # torchvision, transformers or own
    make: typing.Callable  # returns (module, example inputs by name)
    has_loss: bool = False  # the module gives its loss, and the count of its targets
    refusal: str = ""  # what the message of sluice must say, if it cannot run the model
    numbers: dict = dataclasses.field(default_factory=dict)  # by an input: its whole numbers are below this; else VOCABULARY
    targets: tuple = ("targets",)


class OwnLoss(nn.Module):
    """Gives the mean loss over the targets that are not -100, and their number."""

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.out = nn.Embedding(20, 16), nn.LayerNorm(16), nn.Linear(16, 20)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, ids, targets):
        x = self.table(ids)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        loss = nn.functional.cross_entropy(self.out(self.norm(x)).transpose(1, 2), targets)
        return loss, (targets != -100).sum()


class Experts(nn.Module):
    """Each expert takes the samples that chose it, so that sizes depend on the values."""

    def __init__(self):
        super().__init__()
        self.choice, self.experts = nn.Linear(8, 3), nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        chosen, y = self.choice(x).argmax(1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().squeeze(1)
            y = y.index_add(0, rows, expert(x[rows]))
        return y


def own_models():
    pair = {"ids": torch.randint(0, 20, (3, 7)), "scale": torch.randn(3, 7)}
    return [Model("unet", "own", lambda: (UNet(), {"x": torch.randn(3, 3, 16, 16)})),
            Model("two_inputs_shared", "own", lambda: (TwoInputsShared(), pair), numbers={"ids": 20}),
            Model("written", "own", lambda: (Written(), {"x": torch.randn(3, 6)})),
            Model("own_loss", "own", lambda: (OwnLoss(), {"ids": pair["ids"], "targets": pair["ids"].clone()}), has_loss=True,
                  numbers={"ids": 20, "targets": 20}),
            Model("orders", "own", lambda: (Orders(), {"x": torch.randn(3, 3, 8, 8)})),
            Model("sizes", "own", lambda: (Sizes(), {"ids": pair["ids"]}), numbers={"ids": 20}),
            Model("regions", "own", lambda: (Regions(), {"x": torch.randn(3, 6)})),
            Model("experts", "own", lambda: (Experts(), {"x": torch.randn(6, 8)}), refusal="depends on the values")]


def torchvision_model(name, classes=CLASSES):
    size = {"inception_v3": 107, "maxvit_t": 224, "vit_h_14": 56}.get(name, IMAGE)
    return export_sources.from_torchvision(argparse.Namespace(torchvision=name, classes=classes, image_size=size, weights=None))


def transformers_model(kind, options):
    config_class = getattr(transformers, kind).config_class
    config = config_class(**options)
    for key in vars(config):
        if "drop" in key and isinstance(getattr(config, key), (int, float)):
            setattr(config, key, type(getattr(config, key))(0))
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        module, inputs = export_sources.from_transformers(argparse.Namespace(transformers=kind, config=folder, loss=False, classes=None))
    return module, inputs | ({"attention_mask": padded(3, 7)} if "attention_mask" in inputs else {})


def models():
    """All of them, by name."""
    every = own_models()
    for name, (kind, options) in TRANSFORMERS.items():
        every.append(Model(name, "transformers", lambda kind=kind, options=options: transformers_model(kind, options),
                           refusal="is not an operator of ATen" if name == "mixtral" else "",
                           numbers={"token_type_ids": 1 if "roberta" in name else 2},
                           targets=("starts", "ends") if name.endswith("_qa") else ("targets",)))
    for name in torchvision.models.list_models(torchvision.models):
        every.append(Model(name, "torchvision", lambda name=name: torchvision_model(name)))
    return {model.name: model for model in every}


def parameters_of(model):
    """The number of parameters, without their memory."""
    try:
        with torch.device("meta"):
            module, _ = model.make()
    except NotImplementedError:  # regnet computes its sizes with tensors
        module, _ = model.make()
    return sum(parameter.numel() for parameter in module.parameters())


def make(model):
    """(module, example inputs) without dropout; biases and norms have other values than new ones."""
    torch.manual_seed(0)
    module, inputs = model.make()
    module = without_dropout(module).float()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return module, inputs
