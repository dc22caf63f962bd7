"""PyTorch networks for tokens and sound: transformers, recurrent ones, decoders with keys and values kept."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - what everybody calls it


def heads(x: Tensor, count: int) -> Tensor:
    return x.view(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).contiguous().view(x.shape[0], x.shape[2], -1)


class Bert(nn.Module):
    """Three embeddings, a mask, one layer of the encoder, its pooled token."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(60, 32), nn.Embedding(64, 32), nn.Embedding(2, 32)
        self.query, self.key, self.value = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.out, self.wide, self.narrow = nn.Linear(32, 32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.norms = nn.ModuleList(nn.LayerNorm(32, eps=1e-12) for _ in range(3))
        self.pooled = nn.Linear(32, 8)
        self.register_buffer("position_ids", torch.arange(64).expand((1, -1)))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        places = self.places(self.position_ids[:, : input_ids.shape[1]])
        x = self.norms[0](self.words(input_ids) + self.kinds(token_type_ids) + places)
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        query, key, value = (heads(layer(x), 4) for layer in (self.query, self.key, self.value))
        weights = torch.softmax(query @ key.transpose(-1, -2) / 8**0.5 + mask, dim=-1)
        x = self.norms[1](x + self.out(joined(weights @ value)))
        x = self.norms[2](x + self.narrow(F.gelu(self.wide(x))))
        return x, torch.tanh(self.pooled(x[:, 0]))


class Encoder(nn.Module):
    """PyTorch's own encoder layers, with the padding mask of sentences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 3, 48, batch_first=True, norm_first=True, activation="gelu")
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.inward = nn.Linear(10, 24)

    def forward(self, features: Tensor, padding: Tensor) -> Tensor:
        padded = (padding > 0) & (torch.arange(padding.shape[1]) > 0)  # one token is always there
        return self.body(self.inward(features), src_key_padding_mask=padded)


class Vit(nn.Module):
    """Patches, a class token for each image, positions, PyTorch's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 24, 8, 8), nn.Parameter(torch.randn(1, 1, 24))
        self.places = nn.Parameter(torch.randn(1, 17, 24) * 0.1)
        self.norm1, self.norm2 = nn.LayerNorm(24), nn.LayerNorm(24)
        self.attention = nn.MultiheadAttention(24, 3, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(24, 48), nn.GELU(approximate="tanh"), nn.Linear(48, 24))
        self.head = nn.Linear(24, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.mlp(self.norm2(x))
        return self.head(x[:, 0])


class RmsNorm(nn.Module):
    """Rows divided by the root of their mean square."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cosine + torch.cat((-x[..., half:], x[..., :half]), -1) * sine


class Llama(nn.Module):
    """One layer of a decoder with grouped keys, rotary positions and the cache of optimum's exports."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm1, self.norm2, self.norm3 = (
            nn.Embedding(50, 32),
            RmsNorm(32),
            RmsNorm(32),
            RmsNorm(32),
        )
        self.query, self.key = nn.Linear(32, 32, bias=False), nn.Linear(32, 16, bias=False)
        self.value, self.out = nn.Linear(32, 16, bias=False), nn.Linear(32, 32, bias=False)
        self.gate, self.up = nn.Linear(32, 48, bias=False), nn.Linear(32, 48, bias=False)
        self.down, self.head = nn.Linear(48, 32, bias=False), nn.Linear(32, 50, bias=False)
        self.register_buffer("rates", 1.0 / (10000 ** (torch.arange(0, 8, 2).float() / 8)))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        past_key: Tensor,
        past_value: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = self.words(input_ids)
        angles = position_ids[:, :, None].float() * self.rates[None, None, :]
        angles = torch.cat((angles, angles), -1)[:, None]
        y = self.norm1(x)
        query = rotated(heads(self.query(y), 4), angles.cos(), angles.sin())
        key = torch.cat([past_key, rotated(heads(self.key(y), 2), angles.cos(), angles.sin())], 2)
        value = torch.cat([past_value, heads(self.value(y), 2)], 2)
        batch, length, total = x.shape[0], x.shape[1], key.shape[2]
        at = torch.arange(total)
        causal = at[None, :] > at[total - length :, None]
        mask = torch.where(causal[None, None] | (attention_mask[:, None, None, :] == 0), -1e9, 0.0)
        every_key = key[:, :, None].expand(batch, 2, 2, total, 8).reshape(batch, 4, total, 8)
        every_value = value[:, :, None].expand(batch, 2, 2, total, 8).reshape(batch, 4, total, 8)
        weights = F.softmax(query @ every_key.transpose(2, 3) * 8**-0.5 + mask, -1, dtype=torch.float32)
        x = x + self.out(joined(weights @ every_value))
        y = self.norm2(x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.head(self.norm3(x)), key, value


class Gpt2(nn.Module):
    """One layer of GPT-2 behind a cache: one product for query, key and value, a sliced causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(64, 32)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(32), nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out, self.wide, self.narrow = (
            nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 64), nn.Linear(64, 32),
        )  # fmt: skip
        self.register_buffer("allowed", torch.tril(torch.ones(64, 64, dtype=torch.bool)).view(1, 1, 64, 64))

    def forward(
        self, input_ids: Tensor, past_key: Tensor, past_value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        past, length = past_key.shape[2], input_ids.shape[1]
        x = self.words(input_ids) + self.places(torch.arange(past, past + length)[None])
        query, key, value = self.qkv(self.norm1(x)).split(32, dim=2)
        query, key, value = heads(query, 4), heads(key, 4), heads(value, 4)
        key, value = torch.cat((past_key, key), 2), torch.cat((past_value, value), 2)
        scores = query @ key.transpose(-1, -2) / 8**0.5
        allowed = self.allowed[:, :, past : past + length, : past + length]
        scores = torch.where(allowed, scores, torch.full([], -1e9))
        x = x + self.out(joined(scores.softmax(-1) @ value))
        x = x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))
        return self.norm3(x) @ self.words.weight.T, key, value


class T5(nn.Module):
    """An encoder layer with a bias by bucket of distance, as T5 computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.bias = nn.Embedding(50, 32), RmsNorm(32), nn.Embedding(8, 4)
        self.qkv, self.out = nn.Linear(32, 96, bias=False), nn.Linear(32, 32, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.words(input_ids)
        length = input_ids.shape[1]
        distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        far = torch.abs(distance)
        large = 2 + (torch.log(far.float() / 2 + 1e-6) / 2.1 * 2).to(torch.long)
        bucket = (distance > 0).to(torch.long) * 4
        bucket = bucket + torch.where(far < 2, far, torch.min(large, torch.full_like(large, 3)))
        query, key, value = (heads(one, 4) for one in self.qkv(self.norm(x)).chunk(3, -1))
        scores = torch.einsum("bhqd,bhkd->bhqk", query, key) + self.bias(bucket).permute(2, 0, 1)[None]
        return x + self.out(joined(torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), value)))


class Clip(nn.Module):
    """An image and a text, compared by the cosine of their vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.words = nn.Conv2d(3, 16, 8, 8), nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.text = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.left, self.right, self.gain = (
            nn.Linear(16, 12),
            nn.Linear(16, 12),
            nn.Parameter(torch.tensor(1.5)),
        )

    def forward(self, image: Tensor, input_ids: Tensor) -> Tensor:
        left = self.left(F.relu(self.patches(image)).mean((2, 3)))
        tokens = self.text(
            self.words(input_ids), mask=torch.full((7, 7), float("-inf")).triu(1), is_causal=True
        )
        last = tokens[torch.arange(input_ids.shape[0]), input_ids.argmax(-1)[:] % 7]
        right = self.right(last)
        left, right = F.normalize(left, dim=-1), right / right.norm(dim=-1, keepdim=True)
        return (left * right).sum(-1) * self.gain.exp()


class Tagger(nn.Module):
    """Words to tags through a recurrent layer of a kind, both ways."""

    def __init__(self, kind: type[nn.RNNBase], layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.body = kind(16, 12, layers, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 5)

    def forward(self, input_ids: Tensor) -> Tensor:
        return torch.log_softmax(self.head(self.body(self.words(input_ids))[0]), -1)


class Speech(nn.Module):
    """Convolutions on samples, then a recurrent layer of one direction whose state is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.body, self.head = (
            nn.Conv1d(1, 12, 8, 4),
            nn.GRU(12, 16, batch_first=True),
            nn.Linear(16, 6),
        )

    def forward(self, samples: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(self.conv(samples[:, None])).transpose(1, 2)
        x, last = self.body(x, state.transpose(0, 1).contiguous())
        return self.head(x), last.transpose(0, 1)


class Wav2Vec(nn.Module):
    """Samples normalised and convolved, a grouped convolution for positions, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(1, 16, 10, 5, bias=False), nn.Conv1d(16, 16, 3, 2, bias=False)
        self.norm1, self.norm2 = nn.GroupNorm(16, 16), nn.LayerNorm(16)
        self.places = nn.utils.parametrizations.weight_norm(nn.Conv1d(16, 16, 8, padding=4, groups=4), dim=2)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 8)

    def forward(self, samples: Tensor) -> Tensor:
        x = (samples - samples.mean(1, keepdim=True)) / torch.sqrt(samples.var(1, keepdim=True) + 1e-7)
        x = F.gelu(self.conv2(F.gelu(self.norm1(self.conv1(x[:, None])))))
        x = x + F.gelu(self.places(x)[:, :, :-1])
        return self.head(self.layer(self.norm2(x.transpose(1, 2))))


class Whisper(nn.Module):
    """Mel bands, two convolutions, fixed positions, one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(20, 16, 3, padding=1), nn.Conv1d(16, 16, 3, 2, 1)
        self.register_buffer("places", torch.randn(12, 16))
        self.norm, self.query, self.key = nn.LayerNorm(16), nn.Linear(16, 16), nn.Linear(16, 16, bias=False)
        self.value, self.out = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, input_features: Tensor) -> Tensor:
        x = F.gelu(self.conv2(F.gelu(self.conv1(input_features)))).permute(0, 2, 1) + self.places
        y = self.norm(x)
        query, key, value = (heads(layer(y), 2) for layer in (self.query, self.key, self.value))
        return x + self.out(joined(F.scaled_dot_product_attention(query, key, value)))


class Keywords(nn.Module):
    """A spectrum by a Fourier transform of frames, then separable convolutions."""

    def __init__(self) -> None:
        super().__init__()
        angle = torch.arange(32)[:, None] * torch.arange(17)[None, :] * (2 * torch.pi / 32)
        window = torch.hann_window(32)[:, None]
        self.register_buffer(
            "basis", torch.cat([angle.cos() * window, angle.sin() * window], 1).T[:, None].contiguous()
        )
        self.depthwise, self.pointwise = nn.Conv1d(17, 17, 5, groups=17), nn.Conv1d(17, 16, 1)
        self.norm, self.head = nn.BatchNorm1d(16), nn.Linear(16, 5)

    def forward(self, samples: Tensor) -> Tensor:
        parts = F.conv1d(samples[:, None], self.basis, stride=16)
        power = parts[:, :17].square() + parts[:, 17:].square()
        x = F.relu(self.norm(self.pointwise(self.depthwise(torch.log(power + 1e-3)))))
        return self.head(x.mean(-1))


class Temporal(nn.Module):
    """Causal dilated convolutions with gates, as WaveNet and TCN."""

    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Conv1d(4, 12, 1)
        self.layers = nn.ModuleList(nn.Conv1d(12, 24, 2, dilation=2**n) for n in range(3))
        self.head = nn.Conv1d(12, 3, 1)

    def forward(self, signal: Tensor) -> Tensor:
        x = self.inward(signal)
        for number, layer in enumerate(self.layers):
            left, right = layer(F.pad(x, (2**number, 0))).chunk(2, 1)
            x = x + torch.tanh(left) * torch.sigmoid(right)
        return self.head(F.softplus(x))


class Mamba(nn.Module):
    """A selective state space of few steps, whose recurrence the exporter unrolls."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.conv = nn.Linear(8, 32, bias=False), nn.Conv1d(16, 16, 4, padding=3, groups=16)
        self.project, self.step, self.out = (
            nn.Linear(16, 12, bias=False),
            nn.Linear(4, 16),
            nn.Linear(16, 8, bias=False),
        )
        self.rates, self.skip = nn.Parameter(torch.rand(16, 4)), nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        inner, gate = self.inward(x).chunk(2, -1)
        inner = F.silu(self.conv(inner.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step, left, right = self.project(inner).split([4, 4, 4], -1)
        step = F.softplus(self.step(step))
        decay = torch.exp(step[..., None] * -torch.exp(self.rates))
        drive = (step * inner)[..., None] * left[:, :, None, :]
        state, results = torch.zeros_like(drive[:, 0]), []
        for at in range(6):
            state = decay[:, at] * state + drive[:, at]
            results.append((state * right[:, at, None, :]).sum(-1))
        y = torch.stack(results, 1) + inner * self.skip
        return self.out(y * F.silu(gate))
