/** Calls to GPUlayer's routes on the Jupyter server, by its own settings; an answer that is no success becomes `RequestError`. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { API_PREFIX } from './protocol';
import type { ErrorAnswer, StreamError } from './protocol';

/** What the server said no with, or that it could not be reached (`code` is then `unreachable`). */
export class RequestError extends Error {
  constructor(readonly details: StreamError) {
    super(details.message);
    this.name = 'RequestError';
  }
}

export async function request<T>(
  settings: ServerConnection.ISettings,
  path: string,
  init: RequestInit = {},
): Promise<T> {
  let response: Response;
  try {
    response = await ServerConnection.makeRequest(URLExt.join(settings.baseUrl, API_PREFIX, path), init, settings);
  } catch (error) {
    if (error instanceof ServerConnection.NetworkError) {
      throw new RequestError(asError('unreachable', 0, 'The Jupyter server cannot be reached.'));
    }
    throw error;
  }
  const text = await response.text();
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    body = null;
  }
  if (!response.ok) {
    throw new RequestError(
      isErrorAnswer(body)
        ? body.error
        : asError('http', response.status, `HTTP ${response.status} ${response.statusText}`),
    );
  }
  if (body === null) {
    throw new RequestError(asError('http', response.status, 'What answered is not the Jupyter server.'));
  }
  return body as T;
}

export function asError(code: string, status: number, message: string): StreamError {
  return { code, status, message, asked: null, found: null, fix: null };
}

function isErrorAnswer(body: unknown): body is ErrorAnswer {
  const error = (body as { error?: { message?: unknown } } | null)?.error;
  return typeof error === 'object' && typeof error.message === 'string';
}
