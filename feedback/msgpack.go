package feedback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// errShort says that the payload ends inside a value.
var errShort = errors.New("the payload ends inside a value")

// reader reads MessagePack. The first error stays in err and makes all later
// reads return zero values, so that callers check once. It never allocates
// more than a constant times what is left of buf: every element of an array
// or map takes at least one byte, and claimed lengths beyond that are errors.
type reader struct {
	buf []byte
	off int
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = fmt.Errorf("byte %d: %w", r.off, err)
	}
}

func (r *reader) left() int { return len(r.buf) - r.off }

// take is the next n bytes, not copied.
func (r *reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > r.left() {
		r.fail(errShort)
		return nil
	}
	b := r.buf[r.off : r.off+n]
	r.off += n
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// uint reads n big-endian bytes, n at most 8.
func (r *reader) uint(n int) uint64 {
	var v uint64
	for _, b := range r.take(n) {
		v = v<<8 | uint64(b)
	}
	return v
}

// null reads a null if one is next.
func (r *reader) null() bool {
	if r.err != nil || r.left() == 0 || r.buf[r.off] != 0xc0 {
		return false
	}
	r.off++
	return true
}

// integer reads an integer as its 64 bits; negative says how to read them.
func (r *reader) integer() (bits uint64, negative bool) {
	c := r.byte()
	switch {
	case c <= 0x7f:
		return uint64(c), false
	case c >= 0xe0:
		return uint64(int64(int8(c))), true
	case c >= 0xcc && c <= 0xcf:
		return r.uint(1 << (c - 0xcc)), false
	case c >= 0xd0 && c <= 0xd3:
		n := 1 << (c - 0xd0)
		shift := 64 - 8*n
		v := int64(r.uint(n)<<shift) >> shift
		return uint64(v), v < 0
	}
	r.fail(fmt.Errorf("code %#x where an integer belongs", c))
	return 0, false
}

// number reads an integer or a float.
func (r *reader) number() float64 {
	if r.left() > 0 {
		switch r.buf[r.off] {
		case 0xca:
			r.off++
			return float64(math.Float32frombits(uint32(r.uint(4))))
		case 0xcb:
			r.off++
			return math.Float64frombits(r.uint(8))
		}
	}
	bits, negative := r.integer()
	if negative {
		return float64(int64(bits))
	}
	return float64(bits)
}

// small reads an integer of [0, limit].
func (r *reader) small(limit uint64) uint64 {
	bits, negative := r.integer()
	if r.err == nil && (negative || bits > limit) {
		r.fail(fmt.Errorf("integer out of range [0, %d]", limit))
		return 0
	}
	return bits
}

// bytes reads a string or a binary value, not copied.
func (r *reader) bytes() []byte {
	c := r.byte()
	switch {
	case c >= 0xa0 && c <= 0xbf:
		return r.take(int(c & 0x1f))
	case c == 0xd9 || c == 0xc4:
		return r.take(int(r.uint(1)))
	case c == 0xda || c == 0xc5:
		return r.take(int(r.uint(2)))
	case c == 0xdb || c == 0xc6:
		return r.take(int(r.uint(4)))
	}
	r.fail(fmt.Errorf("code %#x where a string belongs", c))
	return nil
}

// array reads an array's header. Its length is at most the bytes left.
func (r *reader) array() int {
	c := r.byte()
	switch {
	case c >= 0x90 && c <= 0x9f:
		return r.length(int(c&0x0f), 1)
	case c == 0xdc:
		return r.length(int(r.uint(2)), 1)
	case c == 0xdd:
		return r.length(int(r.uint(4)), 1)
	}
	r.fail(fmt.Errorf("code %#x where an array belongs", c))
	return 0
}

// fields reads a map's header.
func (r *reader) fields() int {
	c := r.byte()
	switch {
	case c >= 0x80 && c <= 0x8f:
		return r.length(int(c&0x0f), 2)
	case c == 0xde:
		return r.length(int(r.uint(2)), 2)
	case c == 0xdf:
		return r.length(int(r.uint(4)), 2)
	}
	r.fail(fmt.Errorf("code %#x where a map belongs", c))
	return 0
}

func (r *reader) length(n, bytesEach int) int {
	if r.err == nil && n > r.left()/bytesEach {
		r.fail(errShort)
	}
	if r.err != nil {
		return 0
	}
	return n
}

// isMap says whether a map is next.
func (r *reader) isMap() bool {
	if r.err != nil || r.left() == 0 {
		return false
	}
	c := r.buf[r.off]
	return c >= 0x80 && c <= 0x8f || c == 0xde || c == 0xdf
}

// isText says whether a string is next.
func (r *reader) isText() bool {
	if r.err != nil || r.left() == 0 {
		return false
	}
	c := r.buf[r.off]
	return c >= 0xa0 && c <= 0xbf || c >= 0xd9 && c <= 0xdb
}

// skip passes over n values of any kind, however deep, in constant space.
func (r *reader) skip(n int) {
	for ; n > 0 && r.err == nil; n-- {
		c := r.byte()
		switch {
		case c >= 0x80 && c <= 0x8f || c == 0xde || c == 0xdf:
			r.off--
			n += 2 * r.fields()
		case c >= 0x90 && c <= 0x9f || c == 0xdc || c == 0xdd:
			r.off--
			n += r.array()
		case c >= 0xa0 && c <= 0xbf || c >= 0xc4 && c <= 0xc6 || c >= 0xd9 && c <= 0xdb:
			r.off--
			r.bytes()
		case c >= 0xc7 && c <= 0xc9: // ext: length, type, data
			r.take(int(r.uint(1<<(c-0xc7))) + 1)
		case c >= 0xd4 && c <= 0xd8: // fixed ext: type, data
			r.take(1 + 1<<(c-0xd4))
		case c == 0xca:
			r.take(4)
		case c == 0xcb:
			r.take(8)
		case c >= 0xcc && c <= 0xcf:
			r.take(1 << (c - 0xcc))
		case c >= 0xd0 && c <= 0xd3:
			r.take(1 << (c - 0xd0))
		case c == 0xc1:
			r.fail(errors.New("the code 0xc1, which MessagePack never uses"))
		}
	}
}

// The appendX functions write the shortest form, as vLLM's encoder does.

func appendUint(dst []byte, v uint64) []byte {
	switch {
	case v <= 0x7f:
		return append(dst, byte(v))
	case v <= math.MaxUint8:
		return append(dst, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), v)
}

func appendInt(dst []byte, v int64) []byte {
	switch {
	case v >= 0:
		return appendUint(dst, uint64(v))
	case v >= -32:
		return append(dst, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(v))
}

func appendText(dst []byte, s string) []byte {
	switch n := len(s); {
	case n <= 31:
		dst = append(dst, 0xa0|byte(n))
	case n <= math.MaxUint8:
		dst = append(dst, 0xd9, byte(n))
	case n <= math.MaxUint16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0xda), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xdb), uint32(n))
	}
	return append(dst, s...)
}

// appendTextOrNull writes "" as null.
func appendTextOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, 0xc0)
	}
	return appendText(dst, s)
}

func appendArray(dst []byte, n int) []byte {
	switch {
	case n <= 15:
		return append(dst, 0x90|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, 0xdd), uint32(n))
}
