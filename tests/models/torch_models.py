"""The PyTorch twins of our models: torchvision's ResNet blocks and VGG, Hugging Face's ViT and GPT-2, in plain torch as one
would write them today (SDPA, exact GELU, in-place ReLU), with the same parameter names. Used by the comparison test
(compare_with_torch.py) and by the peer's side of the benchmark (bench/peer_torch.py)."""

import torch
from torch import nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    """The stride is the 3x3 convolution's, as in torchvision."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(out)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet8(nn.Module):
    def __init__(self, channels=3, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(BasicBlock(16, 16, 1))
        self.layer2 = nn.Sequential(BasicBlock(16, 32, 2))
        self.layer3 = nn.Sequential(BasicBlock(32, 64, 2))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class ResNet(nn.Module):
    KINDS = {"resnet18": (BasicBlock, 1, (2, 2, 2, 2)), "resnet50": (Bottleneck, 4, (3, 4, 6, 3))}

    def __init__(self, name="resnet18", stem="cifar", channels=3, classes=10):
        super().__init__()
        block, wider, counts = self.KINDS[name]
        if stem == "cifar":
            self.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
            self.maxpool = nn.Identity()
        else:
            self.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        inputs = 64
        for number, count in enumerate(counts):
            width = 64 << number
            blocks = [block(inputs, width, 1 if number == 0 else 2)]
            inputs = wider * width
            blocks += [block(inputs, width, 1) for _ in range(count - 1)]
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Vgg16(nn.Module):
    WIDTHS = (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512, "pool")

    def __init__(self, norm=False, dropout=0.0, channels=3, classes=10):
        super().__init__()
        features = []
        for width in self.WIDTHS:
            if width == "pool":
                features.append(nn.MaxPool2d(2, 2))
                continue
            features.append(nn.Conv2d(channels, width, 3, padding=1))
            features += [nn.BatchNorm2d(width)] if norm else []
            features.append(nn.ReLU(inplace=True))
            channels = width
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 49, 4096), nn.ReLU(True), nn.Dropout(dropout),
            nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(dropout),
            nn.Linear(4096, classes))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class Holder(nn.Module):
    """A module that only gives its parts their names."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


class ViTLayer(nn.Module):
    def __init__(self, width, heads, hidden, eps=1e-6):
        super().__init__()
        self.heads = heads
        projections = Holder(
            query=nn.Linear(width, width), key=nn.Linear(width, width), value=nn.Linear(width, width))
        self.attention = Holder(attention=projections, output=Holder(dense=nn.Linear(width, width)))
        self.intermediate = Holder(dense=nn.Linear(width, hidden))
        self.output = Holder(dense=nn.Linear(hidden, width))
        self.layernorm_before = nn.LayerNorm(width, eps=eps)
        self.layernorm_after = nn.LayerNorm(width, eps=eps)

    def attend(self, x, queries=None):
        """queries: how many of the tokens, from the first, are computed; default: all."""
        x, y = x[:, :queries], self.layernorm_before(x)
        parts = self.attention.attention
        query, key, value = (
            part(of).view(*of.shape[:2], self.heads, -1).transpose(1, 2)
            for part, of in ((parts.query, y[:, :queries]), (parts.key, y), (parts.value, y)))
        y = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(x.shape)
        return x + self.attention.output.dense(y)

    def attend_class_token(self, x):
        return self.attend(x, queries=1)

    def feed_forward(self, x):
        return x + self.output.dense(F.gelu(self.intermediate.dense(self.layernorm_after(x))))


class ViT(nn.Module):
    """class_token_only: the last block computes nothing else, as in our model, because the classifier reads nothing else.
    eps: torchvision's, as ours of fresh weights; OF_TRANSFORMERS is what weights under these names stand for."""

    OF_TRANSFORMERS = 1e-12

    SIZES = {"nano": (64, 4, 4, 128), "tiny": (192, 12, 3, 768), "small": (384, 12, 6, 1536), "base": (768, 12, 12, 3072),
             "large": (1024, 24, 16, 4096)}

    def __init__(self, size="tiny", patch=4, image=32, channels=3, classes=10, class_token_only=False, eps=1e-6):
        super().__init__()
        self.class_token_only = class_token_only
        width, layers, heads, hidden = self.SIZES[size]
        projection = nn.Conv2d(channels, width, patch, patch)
        embeddings = Holder(patch_embeddings=Holder(projection=projection))
        embeddings.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        embeddings.position_embeddings = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        encoder = Holder(layer=nn.ModuleList(ViTLayer(width, heads, hidden, eps) for _ in range(layers)))
        self.vit = Holder(embeddings=embeddings, encoder=encoder, layernorm=nn.LayerNorm(width, eps=eps))
        self.classifier = nn.Linear(width, classes)

    def embed(self, images):
        parts = self.vit.embeddings
        x = parts.patch_embeddings.projection(images).flatten(2).transpose(1, 2)
        return torch.cat([parts.cls_token.expand(x.shape[0], -1, -1), x], 1) + parts.position_embeddings

    def halves(self):
        """The two functions of each block, in order."""
        *blocks, last = self.vit.encoder.layer
        attend = last.attend_class_token if self.class_token_only else last.attend
        return [*((block.attend, block.feed_forward) for block in blocks), (attend, last.feed_forward)]

    def classify(self, x):
        return self.classifier(self.vit.layernorm(x)[:, 0])

    def forward(self, images):
        x = self.embed(images)
        for halves in self.halves():
            for half in halves:
                x = half(x)
        return self.classify(x)


class Conv1D(nn.Module):
    """A linear map whose weight is [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        # One product with its bias, as transformers has it: under autocast a bias that is added later makes it float32.
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width, eps=1e-5)
        self.attn = Holder(c_attn=Conv1D(width, 3 * width), c_proj=Conv1D(width, width))
        self.ln_2 = nn.LayerNorm(width, eps=1e-5)
        self.mlp = Holder(c_fc=Conv1D(width, 4 * width), c_proj=Conv1D(4 * width, width))

    def forward(self, x):
        query, key, value = (
            part.view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for part in self.attn.c_attn(self.ln_1(x)).split(x.shape[-1], dim=2))
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.attn.c_proj(y)
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """tied=False: the head has its own matrix, so that the two shares of the tied gradient are separate."""

    SIZES = {"nano": (32, 2, 2, 256, 32), "tiny": (128, 4, 4, 256, 128), "small": (768, 12, 12, 50257, 1024)}

    def __init__(self, size="tiny", tied=True):
        super().__init__()
        width, blocks, heads, vocabulary, context = self.SIZES[size]
        self.transformer = Holder(
            wte=nn.Embedding(vocabulary, width), wpe=nn.Embedding(context, width),
            h=nn.ModuleList(Gpt2Block(width, heads) for _ in range(blocks)), ln_f=nn.LayerNorm(width, eps=1e-5))
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens):
        parts = self.transformer
        x = parts.wte(tokens) + parts.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in parts.h:
            x = block(x)
        return self.lm_head(parts.ln_f(x))


class Mlp(nn.Module):
    def __init__(self, pixels=3 * 32 * 32, classes=10):
        super().__init__()
        self.fc1 = nn.Linear(pixels, 128)
        self.fc2 = nn.Linear(128, 128)
        self.fc3 = nn.Linear(128, classes)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class ToyCnn(nn.Module):
    def __init__(self, channels=3, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, 1, 1)
        self.conv2 = nn.Conv2d(16, 32, 3, 2, 1)
        self.conv3 = nn.Conv2d(32, 64, 3, 2, 1)
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = F.relu(self.conv3(F.relu(self.conv2(F.relu(self.conv1(x))))))
        return self.fc(x.mean((2, 3)))


def make(name, size="tiny", stem="cifar", image=32, class_token_only=False, eps=1e-6):
    """image: pixels of a side, for the models whose weights depend on it. class_token_only, eps: see ViT."""
    makers = {
        "resnet8": ResNet8,
        "resnet18": lambda: ResNet("resnet18", stem),
        "resnet50": lambda: ResNet("resnet50", stem),
        "vgg16": Vgg16,
        "vgg16_bn": lambda: Vgg16(norm=True),
        "vit": lambda: ViT(size, image=image, class_token_only=class_token_only, eps=eps),
        "gpt2": lambda: Gpt2(size, tied=False),
        "mlp": lambda: Mlp(3 * image * image),
        "toy_cnn": ToyCnn,
    }
    return makers[name]()
