// The child process with a Jupyter server (`../../jupyter_server_for_tests.py`), spoken to line by line.
import { spawn } from 'node:child_process';
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';

const FOLDER = path.resolve(__dirname, '../..');
const PYTHON = process.env.GPULAYER_PYTHON ?? path.resolve(FOLDER, '../../.venv/bin/python');

export type ServerKind = 'lab' | 'notebook' | 'user';

/** What the process says to a command, as far as it is used by name. */
interface Answer {
  error?: string;
  held?: number;
}

export class LabServer {
  /** With its base URL and a closing slash. */
  url = '';
  token = '';
  /** The folder of its notebooks. */
  root = '';
  /** With each of them, all kernels end. */
  restarts = 0;

  static async start(kind: ServerKind): Promise<LabServer> {
    const script = path.join(FOLDER, 'jupyter_server_for_tests.py');
    const server = new LabServer(spawn(PYTHON, [script, kind], { stdio: 'pipe' }));
    Object.assign(server, await server.answer());
    return server;
  }

  async restart(): Promise<void> {
    this.restarts += 1;
    await this.ask('restart');
  }

  /** How many devices jobs hold at this moment. */
  async devicesHeld(): Promise<number> {
    return (await this.ask('held')).held as number;
  }

  async end(): Promise<void> {
    const ended = new Promise<void>(resolve => {
      this.child.once('exit', () => {
        resolve();
      });
    });
    this.child.stdin.end();
    await ended;
  }

  private async ask(command: string): Promise<Answer> {
    this.child.stdin.write(`${command}\n`);
    return this.answer();
  }

  private constructor(private readonly child: ChildProcessWithoutNullStreams) {
    child.stderr.on('data', (data: Buffer) => (this.said += data.toString()));
    createInterface({ input: child.stdout }).on('line', line => {
      this.answers.push(JSON.parse(line) as Answer);
      this.wake();
    });
    child.once('exit', () => {
      this.isOver = true;
      this.wake();
    });
  }

  private async answer(): Promise<Answer> {
    while (this.answers.length === 0) {
      if (this.isOver) {
        throw new Error(`The server for the tests has ended:\n${this.said.slice(-4000)}`);
      }
      await new Promise<void>(resolve => (this.wake = resolve));
    }
    const answer = this.answers.shift() as Answer;
    if (answer.error !== undefined) {
      throw new Error(answer.error);
    }
    return answer;
  }

  private readonly answers: Answer[] = [];
  private wake: () => void = () => undefined;
  private isOver = false;
  private said = '';
}
