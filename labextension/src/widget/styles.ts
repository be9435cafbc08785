/** The views' style sheet, put into the document or shadow root that a view is drawn in: once each. */
import views from '../../style/views.css';

const styled = new WeakSet<Node>();

/** A shadow root does not see the document's style; an element that is not attached yet does not say where it will be. */
export function putStyles(element: HTMLElement): void {
  addTo(element.ownerDocument.head);
  const root = element.getRootNode();
  if (root instanceof ShadowRoot) {
    addTo(root);
  } else if (!element.isConnected) {
    requestAnimationFrame(() => {
      const attached = element.getRootNode();
      if (attached instanceof ShadowRoot) {
        addTo(attached);
      }
    });
  }
}

function addTo(root: Node): void {
  if (styled.has(root)) {
    return;
  }
  styled.add(root);
  const style = document.createElement('style');
  style.textContent = views;
  root.appendChild(style);
}
