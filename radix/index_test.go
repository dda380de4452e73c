package radix

import (
	"errors"
	"testing"
	"time"
)

func at(s int) time.Time { return time.Unix(int64(1000+s), 0) }

func matchOf(x *Index, i Instance, keys []Key) Match {
	for _, m := range x.Match(nil, keys) {
		if m.Instance == i {
			return m
		}
	}
	return Match{Instance: i}
}

func TestStoreNeedsAKnownParent(t *testing.T) {
	x := New(Options{})
	s := Source{Instance: x.AddInstance()}
	if err := x.Store(s, 9, []Key{1}, []Hash{1}); !errors.Is(err, ErrUnknownParent) {
		t.Fatalf("got %v", err)
	}
	if err := x.StoreRoot(Source{Instance: 7}, []Key{1}, []Hash{1}); !errors.Is(err, ErrUnknownInstance) {
		t.Fatalf("got %v", err)
	}
	if err := x.StoreRoot(s, []Key{1, 2}, []Hash{11, 12}); err != nil {
		t.Fatal(err)
	}
	if err := x.Store(s, 12, []Key{3}, []Hash{13}); err != nil {
		t.Fatal(err)
	}
	if got, want := matchOf(x, s.Instance, []Key{1, 2, 3, 4}), (Match{s.Instance, 3, 3}); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestFailedRequestsPredictionsVanish(t *testing.T) {
	x := New(Options{PredictionTTL: 10 * time.Second})
	i := x.AddInstance()
	keys := []Key{1, 2, 3}
	a, b := x.Predict(i, keys, at(0)), x.Predict(i, keys[:2], at(1))
	x.Withdraw(a)
	x.Withdraw(a)
	if got := matchOf(x, i, keys).Blocks; got != 2 {
		t.Fatalf("blocks %d, want the 2 that another request predicted too", got)
	}
	x.Withdraw(b)
	if got := matchOf(x, i, keys).Blocks; got != 0 {
		t.Fatalf("blocks %d, want 0", got)
	}
}
