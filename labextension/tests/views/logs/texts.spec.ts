import { Texts } from '../../../src/views/logs/texts';

function made(count: number): Texts {
  const texts = new Texts();
  for (let place = 0; place < count; place++) {
    expect(texts.push(`text ${place}`)).toBe(place);
  }
  return texts;
}

test('texts stay what they are when they have been packed', () => {
  const texts = made(30_000);
  expect([0, 1, 1023, 1024, 12_345, 29_999].map(place => texts.at(place))).toEqual(
    ['text 0', 'text 1', 'text 1023', 'text 1024', 'text 12345', 'text 29999'], // the last are not packed yet
  );
  expect(texts.at(30_000)).toBe('');
});

test('a packed text can be changed, and its neighbours stay', () => {
  const texts = made(30_000);
  texts.set(1500, '');
  texts.set(1500, 'other, and longer');
  texts.set(29_999, 'last');
  expect([1499, 1500, 1501, 29_999].map(place => texts.at(place))).toEqual([
    'text 1499',
    'other, and longer',
    'text 1501',
    'last',
  ]);
});

test('what is dropped is gone, and places keep their number', () => {
  const texts = made(30_000);
  texts.dropBefore(20_100);
  expect([texts.first, texts.end]).toEqual([20_100, 30_000]);
  expect([20_099, 20_100].map(place => texts.at(place))).toEqual(['', 'text 20100']);
  expect(texts.push('next')).toBe(30_000);
  texts.dropBefore(40_000);
  expect([texts.first, texts.end, texts.at(30_000)]).toEqual([30_001, 30_001, '']);
  texts.push('after');
  expect(texts.at(30_001)).toBe('after');
});
