/** The icon of GPUlayer: two layers of tiles, in the theme's colour. */
import { LabIcon } from '@jupyterlab/ui-components';

const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
<g class="jp-icon3" fill="#616161"><path d="M3 4h8v7H3zM13 4h8v7h-8zM3 13h8v7H3z"/><path d="M13 13h8v7h-8zm2 2v3h4v-3z" fill-rule="evenodd"/></g></svg>`;

export const gpulayerIcon = new LabIcon({ name: 'gpulayer:icon', svgstr: SVG });
