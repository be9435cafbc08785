// Draws a job's text until the kernel has sent the module with the views; text comes by messages, never as state.
export default () => {
  const modules = (globalThis[Symbol.for('gpulayer.widget')] ??= new Map());
  const past = [];
  const views = new Set();
  let size = 0, digest = null, note = '', state = '', lines = [];
  const open = new Map();

  const addChunk = chunk => {
    const mark = `[${chunk.rank === null ? 'launcher' : `rank ${chunk.rank}`}${chunk.stream === 'stderr' ? ' err' : ''}] `;
    const one = open.get(mark) ?? { decoder: new TextDecoder(), rest: '' };
    open.set(mark, one);
    const bytes = Uint8Array.from(atob(chunk.data), letter => letter.charCodeAt(0));
    const parts = (one.rest + one.decoder.decode(bytes, { stream: true })).split('\n');
    one.rest = parts.pop().slice(-4000);
    lines = [...lines, ...parts.map(text => mark + (text.split('\r').filter(Boolean).pop() ?? ''))].slice(-200);
  };
  const addFrame = frame => {
    if (frame.type === 'job') {
      const status = frame.status;
      state = `job ${status.job_id} ${status.name} · ${status.state}${status.waiting_for ? `: ${status.waiting_for}` : ''}`;
    } else if (frame.type === 'logs' && frame.id === -2) frame.page.chunks.forEach(addChunk);
  };
  const text = () => [note, state, ...lines].filter(Boolean).join('\n').replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, '');
  const drawAll = () => views.forEach(view => view.draw());

  const hear = content => {
    if (content.type === 'module') {
      if (!modules.has(content.digest)) {
        if (!content.source) return;
        const url = URL.createObjectURL(new Blob([content.source], { type: 'text/javascript' }));
        modules.set(content.digest, import(url).then(module => ({ module, css: content.css })));
      }
      const first = digest === null;
      digest = content.digest;
      if (first) take();
    } else if (content.type === 'no_module') {
      note = content.reason;
    } else if (content.type === 'frame' || content.type === 'blocked') {
      past.push(content);
      if (content.frame) addFrame(content.frame);
      size += JSON.stringify(content).length;
      while (size > 4e6 && past.length > 1) size -= JSON.stringify(past.shift()).length;
    }
    drawAll();
  };
  let model = null;
  const take = () =>
    modules.get(digest).then(
      loaded => {
        model.send({ type: 'have', digest });
        views.forEach(view => view.begin(loaded));
      },
      error => {
        note = `The views can't be loaded here (${error.message}): text is shown.`;
        drawAll();
      }
    );

  return {
    initialize(given) {
      model = given.model;
      model.on('msg:custom', hear);
    },
    render({ model: own, el }) {
      const pre = document.createElement('pre');
      pre.setAttribute('style', 'max-height: 24em; overflow: auto; white-space: pre-wrap; margin: 0');
      let end = null;
      const view = {
        draw() {
          if (!end) pre.textContent = text() || 'The job is being asked for…';
        },
        begin({ module, css }) {
          if (end) return;
          el.replaceChildren();
          if (css) el.append(Object.assign(document.createElement('style'), { textContent: css }));
          const inner = el.appendChild(document.createElement('div'));
          end = module.drawJob({ model: own, el: inner, backlog: past.slice() }) ?? (() => {});
        }
      };
      el.replaceChildren(pre);
      views.add(view);
      view.draw();
      if (digest !== null) modules.get(digest).then(view.begin, () => {});
      own.send({ type: 'hello', digest });
      return () => {
        views.delete(view);
        end?.();
      };
    }
  };
};
