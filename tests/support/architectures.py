"""Programs of many architectures, small; each has an output [batch, positions, …]."""

from __future__ import annotations

_TOKENS = "(def record (fields :tokens (list i32 12)))"
_VECTORS = "(def record (fields :x (list f32 12 16)))"


def _language_model(norm: str, attention: str, mlp: str, *, post: bool = False) -> str:
    """A decoder of two blocks over 12 tokens of 40, with an untied head."""
    inner = (
        "(let (x (norm-1 (+ x (attention x)))) (norm-2 (+ x (mlp x))))"
        if post
        else "(let (x (+ x (attention (norm-1 x)))) (+ x (mlp (norm-2 x))))"
    )
    return f"""{_TOKENS}
(defmodel block ()
  (parts norm-1 ({norm} 16) attention ({attention}) norm-2 ({norm} 16) mlp ({mlp}))
  (apply (x) {inner}))
(defmodel net ()
  (parts embed  (embedding 40 16 :init (normal 0.5))
         blocks (for (i (range 2)) (block))
         norm   ({norm} 16)
         head   (linear 16 40 :bias false))
  (apply (t) (head (norm (fold (fn (x b) (b x)) (embed t) blocks)))))
(def model (net))"""


_ROTARY = "self-attention 16 4 :causal true :rotary true"

#: Programs by architecture: their outputs all have an axis of 12 positions.
ARCHITECTURES: dict[str, str] = {
    "learned positions, tied head": f"""{_TOKENS}
(defmodel block ()
  (parts norm-1 (layer-norm 16) attention (self-attention 16 4 :causal true)
         norm-2 (layer-norm 16) mlp (mlp 16 64 16))
  (apply (x) (let (x (+ x (attention (norm-1 x)))) (+ x (mlp (norm-2 x))))))
(defmodel gpt ()
  (parts tok (param (list 40 16) :init (normal 0.5)) pos (param (list 12 16) :init (normal 0.5))
         blocks (for (i (range 2)) (block)) norm (layer-norm 16))
  (apply (t)
    (let (x (fold (fn (x b) (b x)) (+ (take tok t) pos) blocks))
      (matmul (norm x) (transpose tok)))))
(def model (gpt))""",
    "scaled logits, tied head": f"""{_TOKENS}
(defmodel t5 ()
  (parts tok (param (list 40 16) :init (normal 0.5)) attention (self-attention 16 4 :causal true)
         norm (rms-norm 16))
  (apply (t)
    (let (x (take tok t) x (+ x (attention x)))
      (matmul (* (norm x) 0.3) (transpose tok)))))
(def model (t5))""",
    "rotary, rms norm, swiglu": _language_model("rms-norm", _ROTARY, "swiglu 16 32"),
    "grouped queries": _language_model("rms-norm", _ROTARY + " :kv-heads 2", "swiglu 16 32"),
    "one head of keys": _language_model("rms-norm", _ROTARY + " :kv-heads 1", "swiglu 16 32"),
    "window": _language_model("rms-norm", _ROTARY + " :window 4", "mlp 16 32 16"),
    "softcap": _language_model("rms-norm", _ROTARY + " :softcap 5.0", "mlp 16 32 16"),
    "interleaved rotary": _language_model(
        "layer-norm", _ROTARY + " :interleaved true :rotary-dim 2", "mlp 16 32 16 :activation silu"
    ),
    "post norm": _language_model(
        "layer-norm", "self-attention 16 4 :causal true", "mlp 16 32 16", post=True
    ),
    "relu, no bias": _language_model(
        "layer-norm",
        "self-attention 16 2 :causal true :bias false",
        "mlp 16 32 16 :activation relu :bias false",
    ),
    "transposed weights": _language_model(
        "layer-norm",
        "self-attention 16 2 :causal true :transposed true",
        "mlp 16 32 16 :transposed true",
    ),
    "experts": _language_model("rms-norm", _ROTARY, "mixture 16 32 4"),
    "encoder": _language_model("layer-norm", "self-attention 16 4", "mlp 16 32 16"),
    "mask as an input": """(def record (fields :tokens (list i32 12) :seen (list bool 12)))
(defmodel net ()
  (parts embed (embedding 40 16 :init (normal 0.5)) attention (self-attention 16 4)
         head (linear 16 8))
  (apply (t m) (let (x (embed t)) (head (+ x (attention x :mask m))))))
(def model (net))""",
    "mask of a constant table": f"""{_VECTORS}
(defmodel net ()
  (parts q (linear 16 16) k (linear 16 16) v (linear 16 16) head (linear 16 8))
  (apply (x)
    (let (i (iota 12)
          seen (<= (unsqueeze i (list 0)) (unsqueeze i (list 1)))
          scores (matmul (q x) (transpose (k x)))
          weights (softmax (where seen scores -inf)))
      (head (matmul weights (v x))))))
(def model (net))""",
    "split qkv, permuted": f"""{_VECTORS}
(defmodel net ()
  (parts qkv (linear 16 48) out (linear 16 16) norm (layer-norm 16))
  (apply (x)
    (let (y (permute (reshape (qkv (norm x)) (list (dim x 0) 12 3 4 4)) (list 2 0 3 1 4))
          (q k v) (split y (list 1 1 1) :axis 0)
          cut (fn (t) (squeeze t :axis 0))
          a (attention (cut q) (cut k) (cut v) :causal true)
          merged (reshape (permute a (list 0 2 1 3)) (list (dim x 0) 12 16)))
      (+ x (out merged)))))
(def model (net))""",
    "positions from iota": f"""{_VECTORS}
(defmodel net ()
  (parts head (linear 16 8))
  (apply (x)
    (let (angle (* (unsqueeze (iota 12 :dtype f32) (list 1)) 0.3)
          angles (+ angle (zeros (list 12 8)))
          x (+ x (concat (list (sin angles) (cos angles)) :axis 1)))
      (head (gelu x)))))
(def model (net))""",
    "causal convolution": f"""{_VECTORS}
(defmodel net ()
  (parts c (conv1d 16 16 3 :padding :causal) head (linear 16 8))
  (apply (x) (head (+ x (transpose (c (transpose x)))))))
(def model (net))""",
    "lstm": f"""{_VECTORS}
(defmodel net () (parts l (lstm-layer 16 8) head (linear 8 20)) (apply (x) (head (l x))))
(def model (net))""",
    "gru": f"""{_VECTORS}
(defmodel net () (parts l (gru-layer 16 8) head (linear 8 20)) (apply (x) (head (l x))))
(def model (net))""",
    "scan": f"""{_VECTORS}
(defmodel net ()
  (parts w (linear 16 16) d (param (list 16) :init (uniform -1.0 1.0)) head (linear 16 8))
  (apply (x)
    (let ((h ys) (scan (fn (h x) (let (n (+ (* h (sigmoid d)) (w x))) (list n (tanh n))))
                       (zeros (list (dim x 0) 16)) x :axis 1))
      (head ys))))
(def model (net))""",
    "cumulative sums": f"""{_VECTORS}
(defmodel net () (parts head (linear 16 8)) (apply (x) (head (tanh (cumsum x :axis 1)))))
(def model (net))""",
    "several outputs": f"""{_TOKENS}
(defmodel net ()
  (parts embed (embedding 40 16 :init (normal 0.5)) a (self-attention 16 4 :causal true)
         head (linear 16 8) other (linear 16 3))
  (apply (t)
    (let (x (embed t) y (+ x (a x)) logits (head y))
      (list :logits logits :best (argmax logits) :more (list (other x) (softmax logits) t)))))
(def model (net))""",
    "heads put apart by einsum": f"""{_VECTORS}
(defmodel net ()
  (parts q (param (list 16 4 4) :init (glorot)) k (param (list 16 4 4) :init (glorot))
         v (param (list 16 4 4) :init (glorot)) o (param (list 4 4 16) :init (glorot)))
  (apply (x)
    (let (part (fn (w) (einsum "bid,dhe->bihe" x w))
          s    (softmax (einsum "bihd,bjhd->bhij" (part q) (part k)))
          read (einsum "bhij,bjhe->bihe" s (part v)))
      (+ x (einsum "bihe,hed->bid" read o)))))
(def model (net))""",
}
