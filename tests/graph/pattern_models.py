"""Modules for the tests of exported models: what layers of ours stand for, what only looks alike, and other shapes."""

import torch
from torch import nn
from torch.nn import functional as F


class Convolutions(nn.Module):
    """[n, 3, 16, 16] -> [n, 4]"""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.same, self.wide = nn.Conv2d(16, 16, 3, padding="same"), nn.Conv2d(16, 16, 3, padding=2, dilation=2)
        self.tall, self.grouped = nn.Conv2d(16, 16, (3, 1), padding=(1, 0)), nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.reduce = nn.Conv2d(16, 16, 1, stride=2)
        self.reduce.weight.requires_grad_(False)  # its bias is trained
        self.norm, self.plain = nn.BatchNorm2d(16, eps=1e-2, momentum=0.3), nn.BatchNorm2d(16, affine=False, momentum=0.2)
        self.shared, self.frozen = nn.BatchNorm2d(16), nn.BatchNorm2d(16).requires_grad_(False)
        self.flat, self.last = nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x):
        x = self.first(x).relu_()
        y = self.norm(self.same(x))
        y += x
        x = F.relu_(y)
        x = F.relu(torch.add(self.plain(self.wide(x)), x, alpha=2))
        x = F.relu(x + self.shared(self.tall(x)))
        x = self.shared(self.grouped(x)) + self.frozen(x)
        y = self.norm(x)  # a second time, and used twice
        x = F.relu(y) * torch.sigmoid(y)
        x = self.reduce(x).mean((2, 3))
        return self.last(F.relu(self.flat(x)))


class NormsFirst(nn.Module):
    """Blocks begin with a batch norm, which counts its batches before it runs; another norm is no layer of ours."""

    def __init__(self):
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 16, 3), nn.Linear(16, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(16), nn.Conv2d(16, 16, 3, padding=1)) for _ in range(3))
        self.stranger = nn.BatchNorm2d(16)
        self.stranger.bias.requires_grad_(False)  # its weight is trained

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(self.stranger(x))
        return self.last(x.mean((2, 3)))


class SharedStatistics(nn.Module):
    """Two norms with weights and numbers of their own share their running statistics; views that are written to."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)
        self.scale = nn.Parameter(torch.rand(8))
        self.shift = nn.Parameter(torch.rand(8))
        self.vector = nn.Parameter(torch.rand(8))

    def forward(self, x):
        x = self.first(x)
        t = x.unsqueeze(0).mT
        t.mul_(3)
        mean, variance = self.second.running_mean, self.second.running_var
        x = F.batch_norm(x, mean, variance, self.second.weight, self.second.bias, self.training)
        y = F.batch_norm(x.tanh(), mean, variance, self.scale, self.shift, self.training, 0.3, 0.1)
        key = y.view(-1, 1, 1, 8)[:1].repeat(1, 1, 3, 2)
        x = x + F.scaled_dot_product_attention(y.view(-1, 1, 1, 8).repeat(1, 1, 3, 2), key, key).mean((1, 2))[:, :8]
        return self.last(x) + F.linear(x, self.vector).unsqueeze(1)


class Texts(nn.Module):
    """[n, T] -> [n, T, 20]; heads are 16 wide."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 64)
        self.query, self.key, self.value = nn.Linear(64, 64), nn.Linear(64, 32, bias=False), nn.Linear(64, 32)
        self.gate, self.up, self.narrow = nn.Linear(64, 48), nn.Linear(64, 48), nn.Linear(64, 48, bias=False)
        self.down, self.scale, self.last = nn.Linear(48, 64), nn.Parameter(torch.rand(64)), nn.Linear(64, 20)
        self.register_buffer("angles", torch.rand(64, 8))

    def rms(self, x, weight):
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    def turned(self, x):
        angles = torch.cat([self.angles, self.angles], -1)[: x.size(2)].unsqueeze(0)
        halves = torch.cat([-x[..., 8:], x[..., :8]], -1)
        return x * angles.cos() + halves * angles.sin()

    def heads(self, x, repeats=1):
        x = x.unflatten(-1, (-1, 16)).transpose(1, 2)
        n, heads, tokens, width = x.shape
        return x[:, :, None].expand(n, heads, repeats, tokens, width).reshape(n, heads * repeats, tokens, width) if repeats > 1 else x

    def attention(self, x, **how):
        query, key = self.turned(self.heads(self.query(x))), self.heads(self.key(x), 2)
        return F.scaled_dot_product_attention(query, key, self.heads(self.value(x), 2), **how).transpose(1, 2).flatten(2)

    def forward(self, ids):
        x = self.table(ids)
        earlier = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).tril()
        x = x + self.attention(self.rms(x, self.scale), is_causal=True)
        x = x + self.attention(self.rms(x, 1 + self.scale), attn_mask=earlier)  # 1 + weight is no parameter
        x = x + self.attention(x, attn_mask=earlier.triu(-2), scale=0.3)
        x = x + self.attention(x, attn_mask=torch.where(earlier, 0.0, -1.0).to(x.dtype))
        x = x + self.attention(x)
        x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        x = x + self.down(F.silu(self.narrow(x)) * self.up(x))  # one has a bias
        x = x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5) * self.scale
        return self.last(F.gelu(x) + F.gelu(x, approximate="tanh"))


class Orders(nn.Module):
    """Writes to what is a view in one order of memory and a copy in another; operators that see the order."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Linear(16, 4)
        self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(7))
        self.complex = nn.Parameter(torch.randn(16, 8, 4, 2))

    def forward(self, x):
        n = x.size(0)
        x.flatten(1).add_(1)
        a = self.norm(self.first(x))
        a.flatten(1).relu_()
        b = self.convs[0](a)
        t = b.permute(0, 2, 3, 1).contiguous()
        t += 1
        a = a + b + t.permute(0, 3, 1, 2)
        b = self.convs[1](a)
        t = b.flatten(2).transpose(1, 2).contiguous()
        t.mul_(3)
        a = b + t.transpose(1, 2).view(b.shape)
        a = torch.relu(self.convs[2](a)) + a
        a.view(n, -1).mul_(0.5)
        b = torch.empty_like(self.convs[3](a))
        b.reshape(n, -1).copy_(a.flatten(1).tanh())
        a = a + b
        a = a + self.convs[4](a).as_strided((n, 16, 8, 8), (1024, 64, 1, 8))
        z = torch.view_as_complex(self.convs[5](a).unflatten(-1, (4, 2))) * torch.view_as_complex(self.complex)
        for conv in self.convs[6:]:
            z = torch.complex(conv(torch.view_as_real(z).flatten(-2)), z.imag.repeat_interleave(2, -1))[..., :4]
        return self.last(z.real.mean((2, 3)))


class Sizes(nn.Module):
    """Numbers of sizes, whole and not, as operands of tensors."""

    def __init__(self):
        super().__init__()
        self.table, self.body, self.last = nn.Embedding(20, 8), nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), nn.Linear(8, 4)

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.body:
            x = torch.tanh(layer(x)) + x
        length = x.size(1)
        x = x / length**0.5 + 1.0 / length - length / 100 + x * (length > 3) + x * -length
        x = x * (ids.numel() / ids.size(0)) / x.size(0) + length**2 + max(length, 5) - (length // 2) % 3
        return self.last(x.sum(1) / length)


class Regions(nn.Module):
    """Parts without gradients or autocast; a buffer is an average of values that are trained."""

    def __init__(self):
        super().__init__()
        self.first, self.exact, self.last = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.register_buffer("average", torch.zeros(16))

    def forward(self, x):
        x = self.first(x)
        with torch.no_grad():
            if self.training:
                self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
            with torch.autocast("cpu", enabled=False):
                scale, shift = (self.exact(x) - self.average).tanh(), x.mean(0, keepdim=True)
        with torch.autocast("cpu", enabled=False):
            y = self.exact(x * scale + shift)
        return self.last(torch.tanh(y + self.average))


class MixedTypes(nn.Module):
    """The norm computes in float32, and its weight has the type of the model."""

    def __init__(self):
        super().__init__()
        self.first, self.scale, self.last = nn.Linear(6, 16), nn.Parameter(torch.rand(16)), nn.Linear(16, 4)

    def forward(self, x):
        x = self.first(x).float()
        x = self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))
        return self.last(x.to(self.scale.dtype))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(c, 2 * c, 3, padding=1) for c in (3, 6, 12))
        self.up = nn.ModuleList(nn.Conv2d(2 * c, c // 2, 3, padding=1) for c in (24, 12, 6))
        self.head = nn.Conv2d(6, 2, 1)

    def forward(self, x):
        skips = []
        for layer in self.down:
            x = layer(x).relu_()
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        for layer in self.up:
            x = torch.cat([nn.functional.interpolate(x, scale_factor=2.0), skips.pop()], 1)
            x = layer(x).relu()
        return self.head(torch.cat([x, x * x], 1))


class TwoInputsShared(nn.Module):
    """One layer is used three times, one is frozen, one weight is tied, and a buffer is changed in place."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.shared = nn.Linear(8, 8)
        self.frozen = nn.Linear(8, 8)
        self.frozen.requires_grad_(False)
        self.out = nn.Linear(8, 20, bias=False)
        self.out.weight = self.table.weight
        self.register_buffer("calls", torch.zeros(8))

    def forward(self, ids, scale):
        x = self.table(ids)
        for _ in range(2):
            x = x + torch.tanh(self.shared(x)) * scale.unsqueeze(-1)
        x = self.frozen(x)
        x[:, 0] = 0
        self.calls.add_(x.detach().mean((0, 1)))
        x = x + self.shared(x) + self.calls
        return self.out(x), x.sum()


class Written(nn.Module):
    """A tensor is written through a view."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        mask = x.new_zeros(6, 6)
        mask[:3, :3] = 1
        y = self.first(x)
        view = y[:, :3]
        view.mul_(2)
        z = self.second(y @ mask)
        z += y
        return self.last(torch.relu_(z))


def padded(samples, tokens):
    """A mask of texts, of which the second is shorter."""
    mask = torch.ones(samples, tokens, dtype=torch.long)
    mask[1, 5:] = 0
    return mask
