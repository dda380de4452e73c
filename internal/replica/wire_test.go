package replica

import (
	"reflect"
	"testing"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/scheduler"
)

// heard is a visitor that keeps everything.
type heard struct {
	loads       map[name]load
	predictions map[uint64]scheduler.Prediction
	ended       []uint64
}

func newHeard() *heard {
	return &heard{loads: map[name]load{}, predictions: map[uint64]scheduler.Prediction{}}
}

func (h *heard) load(n name, l load) { h.loads[n] = l }
func (h *heard) predicted(number uint64, p scheduler.Prediction) {
	p.Keys = append([]blockkey.Key(nil), p.Keys...)
	h.predictions[number] = p
}
func (h *heard) withdrawn(number uint64) { h.ended = append(h.ended, number) }

func sample() (message []byte, want *heard) {
	want = newHeard()
	want.loads[name{"llama", "w0"}] = load{3, 12345}
	want.loads[name{"llama", "wörker"}] = load{1 << 40, 0}
	want.predictions[7] = scheduler.Prediction{Endpoint: "llama", Instance: "w0", PrefixID: "tenant", Keys: []blockkey.Key{1, 1<<63 + 2}, Beginning: 9}
	want.predictions[8] = scheduler.Prediction{Endpoint: "llama", Instance: "w1"}
	want.ended = []uint64{7}
	b := appendCount(appendHead(nil, head{flags: flagReset, sender: 11, seq: 300}), 2)
	for n, l := range want.loads {
		b = appendLoad(b, n, l)
	}
	b = appendPrediction(b, 7, want.predictions[7])
	b = appendPrediction(b, 8, want.predictions[8])
	return appendWithdrawal(b, 7), want
}

func TestAMessageIsReadAsItWasWritten(t *testing.T) {
	message, want := sample()
	h, rest, err := readHead(message)
	if err != nil || h != (head{flags: flagReset, sender: 11, seq: 300}) {
		t.Fatalf("head %+v, error %v", h, err)
	}
	got := newHeard()
	if err := rest.lists(got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v\nwant %+v", got, want)
	}
	ask := appendHead(nil, head{flags: flagAsk, sender: 1, target: 1 << 60})
	if h, _, err := readHead(ask); err != nil || h.target != 1<<60 {
		t.Errorf("ask: %+v, error %v", h, err)
	}
}

func TestAMessageCutAnywhereIsRefused(t *testing.T) {
	message, _ := sample()
	whole := map[int]bool{} // where an item ends
	for n := range message {
		_, rest, err := readHead(message[:n])
		if err == nil {
			err = rest.lists(newHeard())
		}
		if err == nil {
			whole[n] = true
		}
	}
	if len(whole) != 3 { // before each of the three items
		t.Errorf("cut at %v it was taken", whole)
	}
}

func TestOtherVersionsAndFlagsAreRefused(t *testing.T) {
	message, _ := sample()
	for _, at := range []int{0, 1} {
		bad := append([]byte(nil), message...)
		bad[at] |= 0x80
		if _, _, err := readHead(bad); err == nil {
			t.Errorf("byte %d changed, and the message was taken", at)
		}
	}
}

func FuzzMessage(f *testing.F) {
	message, _ := sample()
	f.Add(message)
	f.Add(message[:20])
	f.Add([]byte{version, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		h, rest, err := readHead(data)
		if err != nil {
			return
		}
		got := newHeard()
		if rest.lists(got) != nil {
			return
		}
		keys := 0
		for _, p := range got.predictions {
			keys += len(p.Keys)
		}
		if keys*8 > len(data) {
			t.Errorf("%d keys from %d bytes", keys, len(data))
		}
		if back, _, err := readHead(appendHead(nil, h)); err != nil || back != h {
			t.Errorf("head %+v came back as %+v, error %v", h, back, err)
		}
	})
}
