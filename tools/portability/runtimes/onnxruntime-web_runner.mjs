// ONNX Runtime for the web in Node, as WebAssembly.

import { createRequire } from 'node:module';
import path from 'node:path';

import { openSession } from './session.mjs';

const require = createRequire(`${process.env.PORTABILITY_ENVIRONMENT}/`);
const ort = require('onnxruntime-web');

export const version = () => ort.env.versions.web;

export async function load(model) {
  const weights = path.join(path.dirname(model), 'params.safetensors');
  return {
    run: await openSession(ort, model, {
      externalData: [{ path: 'params.safetensors', data: weights }],
    }),
  };
}
