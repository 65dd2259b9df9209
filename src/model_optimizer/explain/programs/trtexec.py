"""trtexec, whose precision options ended with TensorRT 11."""

from pathlib import PurePosixPath

from model_optimizer.core.explanation import Explanation, Point
from model_optimizer.explain import machine, options, text
from model_optimizer.explain.question import Question
from model_optimizer.facts import flags, tensorrt
from model_optimizer.facts.flags import Table
from model_optimizer.facts.versions import key

TITLE = "trtexec"
PRECISIONS = ("--fp16", "--bf16", "--int8", "--fp8", "--int4", "--best")
MIGRATION = "docs.nvidia.com/deeplearning/tensorrt 11, migration from 10.x to 11.x, trtexec"
QUANTIZE = (
    "nvidia-modelopt 0.47.0, modelopt/onnx/quantization/__main__.py and modelopt/onnx/autocast/__main__.py"
)
STRONG_FROM = "11.0"


def matches(words: list[str]) -> bool:
    return bool(words) and words[0].replace("\\", "/").split("/")[-1].lower() in ("trtexec", "trtexec.exe")


def explain(words: list[str], question: Question) -> Explanation:
    """The command for the release: precision moves from options into the model from 11.0 on."""
    version = question.version_of("tensorrt") or question.version_of("trtexec") or tensorrt.versions()[-1]
    table = flags.table("trtexec", version)
    strong = key(version) >= key(STRONG_FROM)
    given, free = options.read(words[1:], "trtexec", table)
    precisions = [one for one in given if one.name in PRECISIONS]
    rest = [one for one in given if not (strong and one.name in (*PRECISIONS, "--calib"))]
    result = options.translate(rest, "trtexec", table, question, attach="=")
    points = [*_of_precision(given, strong, version), *result.points, *_of_whole(result, free, table)]
    steps, onnx = _steps(given, precisions) if strong else ([], None)
    line = [words[0], *(_with_model(result.words, onnx) if onnx else result.words)]
    return Explanation(
        asked=text.masked(text.line(words)),
        kind="command",
        title="a TensorRT engine built or timed with trtexec",
        means=(_means(strong, precisions, version),),
        points=(*points, *_of_gpu(precisions, version, question)),
        today=(*steps, text.line(line)),
        today_for=f"TensorRT {version}",
        do=(_ours(given, precisions),),
        source=(f"facts/flags/trtexec/{table.version}", MIGRATION, *([QUANTIZE] if steps else [])),
    )


def _ours(given: list[options.Given], precisions: list[options.Given]) -> str:
    """The one command of ours that does the same: the precision, the build, and the proof of it."""
    onnx = next((one.value for one in given if one.name == "--onnx" and one.value), "MODEL")
    words = ["mopt", "convert", onnx, "--to", "tensorrt"]
    if scheme := _scheme({one.name or "" for one in precisions}):
        words += ["--scheme", scheme]
    room = next((one.value for one in given if one.name == "--workspace" and one.value), "")
    if room.isdecimal():
        words += ["--workspace", f"{room}MiB"]
    sizes = any((one.name or "").endswith("Shapes") for one in given)
    also = ", with --profile for the sizes" if sizes else ""
    return (
        f"`{text.line([*words, '--out', 'engine'])}` does it in one step{also}, and reads back what it built"
    )


def _scheme(names: set[str]) -> str | None:
    """The narrowest number format that the options name."""
    low = {"--int4": "int4_rtn", "--fp8": "fp8", "--int8": "int8", "--best": "int8"}
    wide = {"--bf16": "bf16", "--fp16": "fp16"}
    return next((scheme for name, scheme in (low | wide).items() if name in names), None)


def _means(strong: bool, precisions: list[options.Given], version: str) -> str:
    if strong and precisions:
        return (
            f"TensorRT {version} takes the precision from the model alone: convert or quantize the ONNX file "
            "first, then build it without precision options."
        )
    return f"Options as TensorRT {version} takes them."


def _of_precision(given: list[options.Given], strong: bool, version: str) -> list[Point]:
    found: list[Point] = []
    names = {one.name for one in given}
    if not strong:
        if ("--int8" in names and "--calib" not in names) or ("--best" in names and "--calib" not in names):
            says = (
                "without calibration or Q/DQ nodes it builds with placeholder ranges: fast, and wrong results"
            )
            found.append(Point(about="--int8", level="warn", says=says, source="sampleEngines.cpp"))
        if names & set(PRECISIONS) and key(version) >= key("10.12"):
            says = (
                "weak typing is deprecated since 10.12; --stronglyTyped and a converted model are the way on"
            )
            found.append(Point(about="precision options", level="warn", says=says, source=MIGRATION))
        return found
    for one in given:
        if one.name == "--best":
            says = "gone in 11.0; it never was the default. It meant fp16 and int8 together"
            found.append(Point(about="--best", level="changed", says=says, source=MIGRATION))
        elif one.name in PRECISIONS:
            found.append(
                Point(
                    about=one.written,
                    level="changed",
                    says=f"gone in 11.0: {_way(one.name)}",
                    source=MIGRATION,
                )
            )
        elif one.name == "--calib":
            says = (
                "gone in 11.0. It took a calibration cache, a text file, never data; quantizing wants "
                "the data"
            )
            found.append(Point(about=_about(one), level="changed", says=says, source=MIGRATION))
    return found


def _about(one: options.Given) -> str:
    return one.written if one.value is None else f"{one.written}={one.value}"


def _way(name: str | None) -> str:
    return {
        "--fp16": "modelopt.onnx.autocast writes a model in mixed precision",
        "--bf16": "modelopt.onnx.autocast writes a model in mixed precision",
    }.get(name or "", "modelopt.onnx.quantization writes Q/DQ nodes into the model")


def _steps(given: list[options.Given], precisions: list[options.Given]) -> tuple[list[str], str | None]:
    """The commands that bring the precision into the model, and the model that they leave."""
    names = {one.name for one in precisions}
    if not names:
        return [], None
    onnx = next((one.value for one in given if one.name == "--onnx" and one.value), "model.onnx")
    low = next((n.removeprefix("--") for n in ("--int8", "--fp8", "--int4") if n in names), None)
    low = "int8" if "--best" in names and low is None else low
    stem = str(PurePosixPath(onnx).with_suffix(""))
    if low is not None:
        out = f"{stem}_{low}.onnx"
        words = [
            "python",
            "-m",
            "modelopt.onnx.quantization",
            f"--onnx_path={onnx}",
            f"--quantize_mode={low}",
        ]
        words += ["--calibration_data_path=calibration.npz"]
        words += [f"--high_precision_dtype={'bf16' if '--bf16' in names else 'fp16'}"]
        return [text.line([*words, f"--output_path={out}"])], out
    half = "bf16" if "--bf16" in names else "fp16"
    out = f"{stem}_{half}.onnx"
    words = ["python", "-m", "modelopt.onnx.autocast", f"--onnx_path={onnx}", f"--output_path={out}"]
    return [text.line([*words, f"--low_precision_type={half}"])], out


def _with_model(words: list[str], onnx: str) -> list[str]:
    return [f"--onnx={onnx}" if word.startswith("--onnx") else word for word in words] + (
        [] if any(word.startswith("--onnx") for word in words) else [f"--onnx={onnx}"]
    )


def _of_whole(result: options.Translation, free: list[str], table: Table) -> list[Point]:
    del table
    found: list[Point] = []
    if free:
        says = "trtexec takes no words without dashes, and values only after `=`"
        found.append(Point(about=" ".join(free)[:60], level="wrong", says=says))
    given = result.given
    if "--onnx" not in given and "--loadEngine" not in given and given:
        found.append(
            Point(
                about="--onnx",
                level="warn",
                says="names no model: --onnx=FILE builds, --loadEngine=FILE times",
            )
        )
    if "--onnx" in given and "--saveEngine" not in given:
        found.append(
            Point(
                about="--saveEngine",
                level="note",
                says="without it the engine is built, timed and thrown away",
            )
        )
    return found


def _of_gpu(precisions: list[options.Given], version: str, question: Question) -> list[Point]:
    gpu, have = question.gpu, question.capability
    if gpu is None or have is None:
        return []
    release = tensorrt.release(version)
    where = f"{gpu.name} ({machine.dotted(have)})"
    least = release.minimum_compute_capability
    if least and have < least:
        says = f"TensorRT {version} begins at {machine.dotted(least)}; {where} cannot use it"
        return [
            Point(
                about=gpu.name,
                level="wrong",
                says=says,
                source=f"facts/compatibility/tensorrt/{release.version}",
            )
        ]
    found = [Point(about=gpu.name, level="fine", says=f"TensorRT {version} runs on {where}")]
    needs = {"--fp8": (8, 9), "--bf16": (8, 0)}
    for one in precisions:
        need = needs.get(one.name or "")
        if need and have < need:
            says = f"needs compute capability {machine.dotted(need)}; {where} is below"
            found.append(Point(about=one.written, level="wrong", says=says))
    return found
