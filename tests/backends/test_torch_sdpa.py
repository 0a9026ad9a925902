"""The SDPA wrapper: forced kernels, bottom-right causal masks, no mask and no copy where none is needed."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from backends import reference, torch_sdpa
from backends._guard import NotSupported
from backends._sdpa_mask import plan
from backends.call import make_call
from tests.backends.calls import assert_matches, dense, random, run, varlen

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from backends.call import Call

VARIANTS = ["cpu_flash", "cpu_math"]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("sq", "sk"), [(1, 9), (9, 9), (3, 9), (9, 3), (130, 130), (70, 300)])
def test_causal_is_aligned_bottom_right(variant: str, dtype: torch.dtype, sq: int, sk: int) -> None:
    lse = variant == "cpu_flash"
    assert_matches(
        torch_sdpa, dense(sq=sq, sk=sk, kv_heads=2, dtype=dtype, causal=True, return_lse=lse), variant
    )


def test_torch_itself_aligns_top_left() -> None:
    """The trap that the wrapper is for."""
    call = dense(sq=3, sk=9, causal=True)
    q, k, v = (x.transpose(1, 2) for x in (call.q, call.k, call.v))
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    ours, _ = run(torch_sdpa, call, "cpu_flash")
    assert (theirs - ours).abs().max() > 0.1


MASKS: dict[str, Callable[[], Tensor]] = {
    "keys": lambda: random(9) > -0.5,
    "plane": lambda: random(5, 9) > 0,
    "queries": lambda: random(5, 1),
    "batch": lambda: random(2, 1, 5, 9) > 0,
    "heads": lambda: random(4, 1, 9),
    "full": lambda: random(2, 4, 5, 9),
    "strided": lambda: random(9, 5).t(),
    "half": lambda: random(5, 9).half(),
    "double": lambda: random(5, 9).double(),
    "with infinities": lambda: torch.where(random(5, 9) > 0, 0.0, -torch.inf),
    "most negative": lambda: torch.where(random(5, 9) > -0.5, 0.0, torch.finfo(torch.float32).min),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_masks(variant: str, causal: bool, name: str) -> None:
    call = dense(sq=5, sk=9, kv_heads=2, mask=MASKS[name](), causal=causal, return_lse=variant == "cpu_flash")
    assert_matches(torch_sdpa, call, variant)


def test_a_mask_and_causal_of_one_length() -> None:
    assert_matches(torch_sdpa, dense(mask=random(7, 7) > -0.5, causal=True), "cpu_flash")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_a_bias_of_another_dtype(dtype: torch.dtype) -> None:
    for variant in VARIANTS:
        assert_matches(torch_sdpa, dense(sq=5, sk=9, dtype=dtype, mask=random(5, 9)), variant)


@pytest.mark.parametrize(
    ("sq", "sk", "causal", "dead", "own", "built"),
    [
        (7, 7, False, 0, False, False),
        (7, 7, True, 0, True, False),
        (1, 7, True, 0, False, False),
        (9, 7, True, 2, True, False),
        (3, 7, True, 0, False, True),
    ],
)
def test_a_mask_is_built_only_where_one_is_needed(
    sq: int, sk: int, causal: bool, dead: int, own: bool, built: bool
) -> None:
    how = plan(torch.zeros(2, 4, sq, 8), sk, causal, None)
    assert (how.dead, how.causal, how.bias is not None) == (dead, own, built)
    if how.bias is not None:
        assert how.bias.shape == (1, 1, sq, sk), "one plane for all heads and the whole batch"


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the operators that run, with the storage of their tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, list[int]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        where = [x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)]
        self.calls.append((func, where))
        return func(*args, **(kwargs or {}))


def test_nothing_is_copied_that_the_kernel_accepts() -> None:
    """Transposed, sliced and expanded inputs reach the kernel as they lie in memory."""
    fused = random(2, 9, 6, 16)
    k = fused[:, :, 4:5].expand(2, 9, 4, 16)
    call = make_call(fused[:, :, :4], k, fused[:, :, 5:6].expand(2, 9, 4, 16), causal=True)
    with _Operators() as seen:
        run(torch_sdpa, call, "cpu_flash")
    (storages,) = [where for func, where in seen.calls if func == FLASH]
    assert storages == [fused.untyped_storage().data_ptr()] * 3
    copies = {"aten::clone", "aten::copy_", "aten::contiguous", "aten::_to_copy", "aten::cat"}
    assert not copies & {func.name().partition(".")[0] for func, _ in seen.calls}


@pytest.mark.parametrize("which", ["q", "k", "v"])
def test_only_an_input_without_unit_stride_is_copied(which: str) -> None:
    """The operator would read wrong elements; the other two stay where they are."""
    tensors = {name: random(2, 7, 4, 16, seed=ord(name)) for name in "qkv"}
    tensors[which] = random(2, 7, 4, 32)[..., ::2]
    call = make_call(tensors["q"], tensors["k"], tensors["v"], causal=True, return_lse=True)
    assert_matches(torch_sdpa, call, "cpu_flash")
    with _Operators() as seen:
        run(torch_sdpa, call, "cpu_flash")
    (storages,) = [where for func, where in seen.calls if func == FLASH]
    same = [
        storage == tensors[name].untyped_storage().data_ptr()
        for name, storage in zip("qkv", storages, strict=True)
    ]
    assert same == [name != which for name in "qkv"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_packed_batch(variant: str) -> None:
    fields: dict[str, Any] = {"return_lse": True} if variant == "cpu_flash" else {"size_v": 8}
    assert_matches(torch_sdpa, varlen(causal=True, **fields), variant)
    assert_matches(torch_sdpa, varlen((3, 2, 4), (5, 0, 4), causal=True, **fields), variant)
    mask = random(4, 1, 5, 9) > -0.5
    assert_matches(torch_sdpa, varlen(mask=mask, causal=True, **fields), variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("scale", [0.25, torch.tensor(0.25), torch.tensor([0.25], requires_grad=True)])
def test_scales_of_a_tensor(variant: str, scale: float | Tensor) -> None:
    with torch.no_grad():
        assert_matches(
            torch_sdpa, dense(q_scale=scale, k_scale=4.5, v_scale=scale, dtype=torch.bfloat16), variant
        )


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_graph_break(variant: str) -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return torch_sdpa.run(make_call(q, k, v, causal=True), variant=variant)

    call = dense(sq=3, sk=9, kv_heads=2)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(call.q, call.k, call.v), function(call.q, call.k, call.v))


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_where_rows_are_dead(variant: str) -> None:
    gradients = []
    for module, name in ((torch_sdpa, variant), (reference, None)):
        call = dense(sq=6, sk=4, causal=True, dtype=torch.float64, kv_heads=2)
        call.k.requires_grad_()
        out, _ = run(module, call, name)
        torch.autograd.backward([out], [random(*out.shape, dtype=torch.float64)])
        gradients.append(call.k.grad)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-9, atol=1e-11)


def test_gradient_of_the_mask() -> None:
    def call() -> Call:
        return dense(dtype=torch.float64, mask=random(7, 7, dtype=torch.float64).requires_grad_())

    with pytest.raises(NotSupported, match="mask that requires a gradient"):
        run(torch_sdpa, call(), "cpu_flash")
    gradients = []
    for module, name in ((torch_sdpa, "cpu_math"), (reference, None)):
        one = call()
        torch.autograd.backward([run(module, one, name)[0].sum()])
        assert one.mask is not None
        gradients.append(one.mask.grad)
    torch.testing.assert_close(gradients[0], gradients[1])


def test_other_devices_and_dtypes_are_refused() -> None:
    assert torch_sdpa.refuses(dense(), "cuda_flash") == "dtype torch.float32: takes float16, bfloat16"
    half = dense(dtype=torch.float16)
    assert torch_sdpa.refuses(half, "cuda_flash") == "device cpu: runs on cuda"


def test_forcing_a_kernel_leaves_the_process_as_it_was() -> None:
    def flags() -> list[bool]:
        return [
            torch._C._get_flash_sdp_enabled(),
            torch._C._get_math_sdp_enabled(),
            torch._C._get_mem_efficient_sdp_enabled(),
        ]

    before = flags()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for variant in VARIANTS:
            run(torch_sdpa, dense(), variant)
    assert flags() == before


@pytest.mark.parametrize("variant", ["cpu_flash", "cpu_math"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mask_dtype", [torch.float64, torch.float32, torch.float16])
def test_a_bias_of_any_dtype(variant: str, dtype: torch.dtype, mask_dtype: torch.dtype) -> None:
    for causal in (False, True):  # more keys than a vector has elements
        mask = random(1, 4, 20, 40, dtype=mask_dtype)
        call = dense(sq=20, sk=40, dtype=dtype, mask=mask, causal=causal)
        assert_matches(torch_sdpa, call, variant)
