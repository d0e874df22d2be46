// A model in ONNX Runtime's JavaScript API, which is the same in Node and in a browser.

// The dtypes of safetensors, with their names in this API and what holds their elements.  It has no
// tensors of bf16.
const TYPES = {
  F32: ['float32', Float32Array],
  F64: ['float64', Float64Array],
  I32: ['int32', Int32Array],
  I64: ['int64', BigInt64Array],
  BOOL: ['bool', Uint8Array],
};

/** A function from inputs to outputs, both tensors by name as tensors.mjs has them. */
export async function openSession(ort, model, options = {}) {
  const session = await ort.InferenceSession.create(model, options);
  return async (inputs) => {
    const feeds = {};
    for (const [name, tensor] of Object.entries(inputs)) feeds[name] = toOrt(ort, name, tensor);
    const results = await session.run(feeds);
    const outputs = {};
    for (const name of session.outputNames) outputs[name] = fromOrt(results[name]);
    return outputs;
  };
}

function toOrt(ort, name, { dtype, shape, bytes }) {
  if (!(dtype in TYPES)) throw new TypeError(`\`${name}\`: there are no tensors of ${dtype}`);
  const [type, Elements] = TYPES[dtype];
  return new ort.Tensor(type, new Elements(bytes.buffer), shape);
}

function fromOrt({ type, dims, data }) {
  const [dtype] = Object.entries(TYPES).find(([, [name]]) => name === type) ?? [type];
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return { dtype, shape: [...dims], bytes };
}
