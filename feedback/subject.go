package feedback

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Subjects' first tokens.
const (
	eventPrefix    = "kv"
	snapshotPrefix = "kvsnap"
)

// allRanks stands in a snapshot subject where the rank would: every rank of
// the instance answers, with its head.
const allRanks = "all"

// Headers of the messages.
const (
	headerEpoch    = "Warmroute-Epoch"    // opaque, one per worker process
	headerSeq      = "Warmroute-Seq"      // decimal, from 0, contiguous per epoch and rank
	headerInstance = "Warmroute-Instance" // the instance's name, as in the subject
)

var errSubject = errors.New("want kv.<endpoint>.<instance>.<rank>")

// EventSubject is the subject that a rank's batches are published on.
func EventSubject(endpoint, instance string, rank int) string {
	return eventPrefix + "." + token(endpoint) + "." + token(instance) + "." + strconv.Itoa(rank)
}

// SnapshotSubject is the subject on which a rank answers for snapshots.
func SnapshotSubject(endpoint, instance string, rank int) string {
	return snapshotPrefix + "." + token(endpoint) + "." + token(instance) + "." + strconv.Itoa(rank)
}

func headSubject(endpoint, instance string) string {
	return snapshotPrefix + "." + token(endpoint) + "." + token(instance) + "." + allRanks
}

// parseSubject is EventSubject's inverse.
func parseSubject(subject string) (endpoint, instance string, rank int, err error) {
	parts := strings.Split(subject, ".")
	if len(parts) != 4 || parts[0] != eventPrefix {
		return "", "", 0, fmt.Errorf("subject %q: %w", subject, errSubject)
	}
	rank, err = parseRank(parts[3])
	if err != nil {
		return "", "", 0, fmt.Errorf("subject %q: %w", subject, err)
	}
	if endpoint, err = untoken(parts[1]); err != nil {
		return "", "", 0, fmt.Errorf("subject %q: %w", subject, err)
	}
	if instance, err = untoken(parts[2]); err != nil {
		return "", "", 0, fmt.Errorf("subject %q: %w", subject, err)
	}
	return endpoint, instance, rank, nil
}

// parseRank reads a rank in its one form: decimal, no sign, no leading zero.
func parseRank(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("rank: %w", err)
	}
	if strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("rank %q is not in its canonical form", s)
	}
	return int(n), nil
}

// plain says which bytes of a name stand for themselves in a subject.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// token makes a name one token of a subject: every byte but letters, digits,
// '-' and '_' becomes %XX, as in URLs. So a name with dots or a port is still
// one token, and two names never share one.
func token(name string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteString(string([]byte{'%', hex[c>>4], hex[c&15]}))
		}
	}
	return b.String()
}

// untoken is token's inverse; it refuses what token would not have written.
func untoken(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if i+2 >= len(s) {
				return "", fmt.Errorf("name %q ends inside an escape", s)
			}
			v, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				return "", fmt.Errorf("name %q: %w", s, err)
			}
			c = byte(v)
			i += 2
		}
		b.WriteByte(c)
	}
	if b.Len() == 0 || token(b.String()) != s {
		return "", fmt.Errorf("name %q is not in its canonical form", s)
	}
	return b.String(), nil
}
