// Tests of models and views in jsdom; what needs a real browser lives in ui-tests/.
const esm = [
  '@jupyterlab',
  '@jupyter',
  '@lumino',
  'lib0',
  'y-protocols',
  'yjs',
  'y-websocket',
  'nanoid',
  '@microsoft',
  'exenv-es6',
  'marked',
  'vscode-ws-jsonrpc',
  'uplot',
  'd3-.*',
  'internmap',
  'delaunator',
  'robust-predicates',
].join('|');

export default {
  testEnvironment: 'jsdom',
  testMatch: ['<rootDir>/tests/**/*.spec.ts'],
  moduleFileExtensions: ['ts', 'js', 'mjs', 'json', 'node'],
  transform: {
    '\\.ts$': ['ts-jest', { tsconfig: '<rootDir>/tsconfig.test.json', diagnostics: false, isolatedModules: true }],
    '\\.(m?js)$': [
      'ts-jest',
      {
        tsconfig: { allowJs: true, esModuleInterop: true, target: 'ES2022', module: 'CommonJS' },
        diagnostics: false,
        isolatedModules: true,
      },
    ],
  },
  moduleNameMapper: { '\\.(css|svg)$': '<rootDir>/tests/empty.js' },
  transformIgnorePatterns: [`/node_modules/(?!(${esm})/)`],
  setupFiles: ['<rootDir>/tests/jsdom.ts'],
};
