// Runs a case in a runtime and writes what came of it, as exchange.py does for Python's.
//
//     node exchange.mjs RUNNER CASE OUT
//
// RUNNER is a module beside this one with `version()`, the runtime's own, and `load(path, case)`,
// which gives `run`, a function from inputs to outputs by name as tensors.mjs has them, and where a
// run's time is not that of calling it `measure`, from inputs to seconds.  Its packages are in
// the folder $PORTABILITY_ENVIRONMENT.

import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { readTensors, writeTensors } from './tensors.mjs';
import { median } from './timing.mjs';

const [runner, folder, out] = process.argv.slice(2);
const result = { version: '', load_seconds: null, runs: [], failure: null };
let stage = { stage: 'import' };

// What a browser leaves behind goes with the folder.
process.env.TMPDIR = out;

// Written after each step, so that a crash tells how far it came.
function note(changes) {
  Object.assign(result, changes);
  writeFileSync(path.join(out, 'result.json'), JSON.stringify(result));
}

function begin(next) {
  stage = next;
  note({ failure: { ...stage, error: 'the process ended' } });
}

async function main() {
  const about = JSON.parse(readFileSync(path.join(folder, 'case.json'), 'utf8'));
  begin(stage);
  const { version, load } = await import(`./${runner}.mjs`);
  note({ version: await version() });
  begin({ stage: 'load' });
  const started = performance.now();
  const { run, measure } = await load(path.join(folder, 'model.onnx'), about);
  result.load_seconds = (performance.now() - started) / 1000;
  for (const batch of about.batches) {
    begin({ stage: 'run', batch });
    const inputs = readTensors(readFileSync(path.join(folder, `inputs-${batch}.safetensors`)));
    const called = performance.now();
    const outputs = await run(inputs);
    let seconds = (performance.now() - called) / 1000;
    writeFileSync(path.join(out, `outputs-${batch}.safetensors`), writeTensors(outputs));
    if (batch === Math.min(...about.batches)) {
      seconds = measure ? await measure(inputs) : await median(() => run(inputs));
    }
    result.runs.push({ batch, seconds });
  }
  note({ failure: null });
}

try {
  await main();
  process.exit(0);
} catch (error) {
  // WebAssembly throws numbers too.
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  note({ failure: { ...stage, error: text.slice(-20_000) } });
  console.error(error);
  process.exit(1);
}
