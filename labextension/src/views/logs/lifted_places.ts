/** Places that stand behind all others, as a list's last positions, for as long as they are lifted. */
export class LiftedPlaces {
  private order: readonly number[] = [];
  private ascending: readonly number[] = [];

  /** @param order - In which they stand. */
  set(order: readonly number[]): void {
    this.order = order;
    this.ascending = [...order].sort((one, other) => one - other);
  }

  /** Where a place stands in a list that ends before `end`. */
  positionOf(place: number, end: number): number {
    let before = 0;
    for (const lifted of this.ascending) {
      if (lifted === place) {
        return end - this.order.length + this.order.indexOf(place);
      }
      if (lifted > place) {
        break;
      }
      before++;
    }
    return place - before;
  }

  /** Which place stands there. */
  placeAt(position: number, end: number): number {
    const behind = position - (end - this.order.length);
    if (behind >= 0 && behind < this.order.length) {
      return this.order[behind] ?? position;
    }
    let place = position;
    for (const lifted of this.ascending) {
      if (lifted > place) {
        break;
      }
      place++;
    }
    return place;
  }
}
