// ONNX Runtime for Node, on the CPU.

import { createRequire } from 'node:module';

import { openSession } from './session.mjs';

const require = createRequire(`${process.env.PORTABILITY_ENVIRONMENT}/`);
const ort = require('onnxruntime-node');

export const version = () => ort.env.versions.node;

export async function load(path) {
  return { run: await openSession(ort, path) };
}
