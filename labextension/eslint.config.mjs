// Rules that tools hold: strict types, user text never becomes markup, views know neither JupyterLab nor Lumino.
import js from '@eslint/js';
import tseslint from 'typescript-eslint';

const MARKUP = ['innerHTML', 'outerHTML', 'insertAdjacentHTML', 'document.write'];
const asMarkup = MARKUP.flatMap(name => [
  {
    selector: `MemberExpression[property.name='${name.split('.').pop()}']`,
    message: 'User text is never markup: use textContent and createElement.',
  },
]);

export default tseslint.config(
  { ignores: ['lib/**', 'node_modules/**', 'ui-tests/**', '**/*.mjs', 'tests/empty.js', 'src/protocol.ts'] },
  js.configs.recommended,
  ...tseslint.configs.strict,
  {
    files: ['src/**/*.ts', 'tests/**/*.ts'],
    rules: {
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/explicit-module-boundary-types': 'error',
      '@typescript-eslint/no-empty-function': 'off',
      '@typescript-eslint/no-extraneous-class': 'off',
      eqeqeq: ['error', 'always', { null: 'ignore' }],
      'max-lines': ['error', { max: 400 }],
      'no-restricted-syntax': ['error', ...asMarkup],
      'no-restricted-globals': ['error', 'fetch', 'WebSocket'],
    },
  },
  {
    files: ['src/views/**/*.ts', 'src/widget.ts', 'src/widget/**/*.ts', 'src/stream/{asking,backoff,subscriptions}.ts'],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              group: ['@jupyterlab/*', '@lumino/*', 'react', 'react-dom'],
              message: 'Views are shared with the widget: plain DOM only.',
            },
          ],
        },
      ],
    },
  },
  { files: ['tests/**/*.ts'], rules: { '@typescript-eslint/no-non-null-assertion': 'off' } },
);
