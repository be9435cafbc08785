// A job that goes on until a test lets it end.
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Two ranks that print a numbered line each 50 ms until `file` is there, and then how many there were. */
export function untilTold(file: string, options = ''): string {
  return `%%gpulayer --nodes 1 --devices 2 ${options}
import os, threading
rank, number = os.environ["RANK"], 0
while not os.path.exists(${JSON.stringify(file)}):
    print(f"rank {rank} line {number}", flush=True)
    number += 1
    threading.Event().wait(0.05)
print(f"rank {rank} said {number}", flush=True)
`;
}

export async function end(file: string): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, '');
}
