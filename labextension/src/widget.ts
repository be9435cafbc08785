/** The module of the anywidget: the views, on what the kernel says. Runs in any front end that draws widgets. */
import { JobView } from './views/job_view';
import { CommJobSource } from './widget/comm_source';
import type { WidgetModel } from './widget/comm';
import { putStyles } from './widget/styles';

export interface DrawJob {
  model: WidgetModel;
  /** Empty, and the view's alone. */
  el: HTMLElement;
  /** What the kernel has said so far, in order. */
  backlog: readonly unknown[];
}

/** Draws the job; what it returns ends the view. */
export function drawJob({ model, el, backlog }: DrawJob): () => void {
  putStyles(el);
  const source = new CommJobSource(model);
  const view = new JobView(source);
  el.append(view.node);
  for (const message of backlog) {
    source.onMessage(message);
  }
  return () => {
    view.dispose();
    source.dispose();
    view.node.remove();
  };
}
