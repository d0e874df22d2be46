// Safetensors files as tensors by name, each `{dtype, shape, bytes}`, in Node and in a browser.

/** A file's tensors.  Their bytes are copies, which typed arrays may be made of. */
export function readTensors(given) {
  // A Buffer's slices are no copies.
  const file = new Uint8Array(given.buffer, given.byteOffset, given.byteLength);
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const text = new TextDecoder().decode(file.subarray(8, 8 + length));
  const { __metadata__, ...header } = JSON.parse(text);
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: [begin, end] }] of Object.entries(header)) {
    tensors[name] = { dtype, shape, bytes: file.slice(8 + length + begin, 8 + length + end) };
  }
  return tensors;
}

/** A file of tensors. */
export function writeTensors(tensors) {
  const header = {};
  let end = 0;
  for (const [name, { dtype, shape, bytes }] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [end, (end += bytes.byteLength)] };
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(8 + text.length + end);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  for (const [name, { bytes }] of Object.entries(tensors)) {
    file.set(bytes, 8 + text.length + header[name].data_offsets[0]);
  }
  return file;
}
