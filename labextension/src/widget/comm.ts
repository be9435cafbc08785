/** What a kernel and a view of its widget say to each other. `jupyter_ext/gpulayer_jupyter/widgets` is the other side. */
import type { StreamError, StreamFrame, StreamRequest } from '../protocol';

export type KernelMessage =
  /** A frame of the stream; with an id below 0 one that nobody asked for, whose page begins at `after`. */
  | { type: 'frame'; after: number | null; frame: StreamFrame }
  /** Whether a cell keeps the kernel from hearing anything. */
  | { type: 'blocked'; value: boolean }
  | { type: 'reply'; id: number; answer: unknown }
  | { type: 'reply'; id: number; error: StreamError }
  /** The kernel gives the widget up. */
  | { type: 'lost' };

export interface WidgetRequest {
  type: 'request';
  id: number;
  call: 'earlier_logs' | 'source' | 'cancel' | 'start_local_workers' | 'join_command';
  arguments: Record<string, unknown>;
}

/** The part of an anywidget's model that is used. */
export interface WidgetModel {
  get(name: 'job_id'): unknown;
  send(content: StreamRequest | WidgetRequest): void;
  on(event: 'msg:custom', listener: (message: unknown) => void): void;
  off(event: 'msg:custom', listener: (message: unknown) => void): void;
}

export function isKernelMessage(message: unknown): message is KernelMessage {
  return typeof message === 'object' && message !== null && typeof (message as { type?: unknown }).type === 'string';
}
