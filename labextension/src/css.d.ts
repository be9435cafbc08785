/** Style sheets that are bundled as text (`../build-widget.mjs`). */
declare module '*.css' {
  const text: string;
  export default text;
}
