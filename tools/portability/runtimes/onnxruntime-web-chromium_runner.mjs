// ONNX Runtime for the web in Chromium without a window: a page of a server of our own, which stands
// alone (COOP and COEP), as pages must that use threads.

import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { readTensors, writeTensors } from './tensors.mjs';

const require = createRequire(`${process.env.PORTABILITY_ENVIRONMENT}/`);
const { chromium } = require('playwright-core');
const ort = path.dirname(require.resolve('onnxruntime-web'));
const here = path.dirname(fileURLToPath(import.meta.url));

// Nothing of it is to look for anything outside.
const FLAGS = ['--disable-gpu', '--disable-quic', '--disable-sync'];
const TYPES = { '.html': 'text/html', '.mjs': 'text/javascript', '.wasm': 'application/wasm' };

export const version = () => require('onnxruntime-web').env.versions.web;

export async function load(model) {
  const exchanged = { inputs: null, outputs: null };
  const origin = await serve({ ort, model: path.dirname(model), page: here }, exchanged);
  const browser = await chromium.launch({ executablePath: find(), args: FLAGS });
  const page = await browser.newPage();
  page.setDefaultTimeout(0);
  const crash = new Promise((_, reject) => {
    page.on('crash', () => reject(new Error('the page crashed: it had too little memory?')));
  });
  crash.catch(() => {});
  const evaluate = (...words) => Promise.race([page.evaluate(...words), crash]);
  await page.goto(`${origin}/page/page.html`);
  await evaluate(() => window.load());

  const call = async (name, inputs) => {
    exchanged.inputs = writeTensors(inputs);
    return evaluate((called) => window[called](), name);
  };
  return {
    async run(inputs) {
      await call('run', inputs);
      return readTensors(exchanged.outputs);
    },
    measure: (inputs) => call('measure', inputs),
  };
}

/** Chromium, as it is called on the path. */
function find() {
  const folders = process.env.PATH.split(path.delimiter);
  for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
    const found = folders.map((folder) => path.join(folder, name)).find(existsSync);
    if (found) return found;
  }
  throw new Error('there is no chromium');
}

/** Serves folders under their names, `/inputs` and `/outputs`, to this machine alone. */
async function serve(folders, exchanged) {
  const server = createServer(async (request, response) => {
    response.setHeader('Cross-Origin-Opener-Policy', 'same-origin');
    response.setHeader('Cross-Origin-Embedder-Policy', 'require-corp');
    if (request.url === '/inputs') return response.end(exchanged.inputs);
    if (request.url === '/outputs') {
      exchanged.outputs = Buffer.concat(await request.toArray());
      return response.end();
    }
    const [, folder, name] = request.url.split('/');
    const file = path.join(folders[folder] ?? '', name ?? '');
    if (!(folder in folders) || !existsSync(file)) return response.writeHead(404).end();
    response.setHeader('Content-Type', TYPES[path.extname(name)] ?? 'application/octet-stream');
    // What reads more than a GiB asks for it first.
    response.setHeader('Content-Length', statSync(file).size);
    return createReadStream(file).pipe(response);
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return `http://127.0.0.1:${server.address().port}`;
}
