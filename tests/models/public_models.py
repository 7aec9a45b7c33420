"""The public models themselves, of torchvision and transformers, under the names of ours, with whatever constants their own
constructors give them (epsilons, activations, momentum): for tests of their names
(public_names_test.py), numbers (tests/app/public_models_test.py) and files (tests/app/public_weights_test.py)."""

import importlib.util
import re

import torch
import torchvision
from torch import nn

if importlib.util.find_spec("transformers") is None:  # importing it takes a second and a half, so vit() does
    raise ImportError("No module named 'transformers'")

RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
VGGS = ("vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn")
CONVNEXTS = ("tiny", "small", "base", "large")
VITS = {"tiny": (192, 12, 3, 768), "small": (384, 12, 6, 1536), "base": (768, 12, 12, 3072), "large": (1024, 24, 16, 4096)}


def vit(size, classes, image, patch):
    from transformers import ViTConfig, ViTForImageClassification
    width, blocks, heads, hidden = VITS[size]
    return ViTForImageClassification(ViTConfig(
        hidden_size=width, num_hidden_layers=blocks, num_attention_heads=heads, intermediate_size=hidden,
        image_size=image, patch_size=patch, num_labels=classes))


def resnet(name, stem, classes):
    model = getattr(torchvision.models, name)(num_classes=classes)
    if stem == "cifar":
        model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        model.maxpool = nn.Identity()
    return model


def make(name, size="tiny", stem="imagenet", classes=1000, image=224, patch=16):
    """As `sluice` makes it without dropout; stem: of the ResNets."""
    if name == "vit":
        return vit(size, classes, image, patch)
    if name == "convnext":
        return getattr(torchvision.models, f"convnext_{size}")(num_classes=classes, stochastic_depth_prob=0)
    if name in VGGS:
        return getattr(torchvision.models, name)(num_classes=classes, dropout=0.0)
    return resnet(name, stem, classes)


def every_model():
    """(name, size, stem) of all that have a public peer."""
    yield from ((name, "tiny", "imagenet") for name in RESNETS)
    yield "resnet18", "tiny", "cifar"
    yield from ((name, "tiny", "cifar") for name in VGGS)
    yield from (("convnext", size, "cifar") for size in CONVNEXTS)
    yield from (("vit", size, "cifar") for size in VITS)


def leave_initial_values(model):
    """So that a tensor that is swapped or ignored shows; norms near one, no block of ConvNeXt scaled down to nothing, and no
    head of zeros, as torchvision's ViT begins with, behind which nothing shows."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("layer_scale"):
                parameter.copy_(0.2 + 0.3 * torch.rand_like(parameter))
            elif parameter.dim() <= 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
            elif name.endswith(("cls_token", "position_embeddings")):
                parameter.copy_(torch.randn_like(parameter))
            elif not parameter.any():
                parameter.copy_(torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.add_(torch.rand_like(buffer))
    return model


# transformers 5 calls the parts of a ViT otherwise in the program than in files: (in the program, in files).
VIT_NAMES = (
    (r"vit\.layers\.", "vit.encoder.layer."),
    (r"attention\.q_proj", "attention.attention.query"),
    (r"attention\.k_proj", "attention.attention.key"),
    (r"attention\.v_proj", "attention.attention.value"),
    (r"attention\.o_proj", "attention.output.dense"),
    (r"mlp\.fc1", "intermediate.dense"),
    (r"mlp\.fc2", "output.dense"),
)


def name_in_files(name, tensor):
    """Of a parameter of a model by make(): the name that its library's files have."""
    if name == "vit":
        for inside, outside in VIT_NAMES:
            tensor = re.sub(inside, outside, tensor)
    return tensor


def logits_of(name, model, images):
    return model(images).logits if name == "vit" else model(images)
