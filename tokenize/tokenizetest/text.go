package tokenizetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Prose is n bytes or a little more of English-like sentences in which no
// paragraph comes twice.
func Prose(r *rand.Rand, n int) string {
	words := strings.Fields(`the a of to and in that it is was for on are as with his they at be this have from or one had by
		word but not what all were we when your can said there use an each which she do how their if will up other about out many
		then them these so some her would make like him into time has look two more write go see number no way could people my than
		first water been call who oil its now find long down day did get come made may part over new sound take only little work know
		place year live me back give most very after thing our just name good sentence man think say great where help through much
		before line right too mean old any same tell boy follow came want show also around form three small set put end does another
		router worker cache prefix scheduler instance latency throughput tokenizer template conversation assistant deployment`)
	var b strings.Builder
	for b.Len() < n {
		for i := range 6 + r.IntN(12) {
			w := words[r.IntN(len(words))]
			if i == 0 {
				w = strings.ToUpper(w[:1]) + w[1:]
			} else {
				b.WriteByte(' ')
			}
			b.WriteString(w)
		}
		b.WriteString([]string{". ", ". ", "? ", ", so ", ".\n\n"}[r.IntN(5)])
	}
	return b.String()
}

// Code is n bytes or a little more of program text in which no function comes
// twice.
func Code(r *rand.Rand, n int) string {
	names := strings.Fields("block chain count entry frame index input key limit node offset output parent queue route size state table token value")
	name := func() string {
		a, b := names[r.IntN(len(names))], names[r.IntN(len(names))]
		return a + strings.ToUpper(b[:1]) + b[1:]
	}
	var b strings.Builder
	for b.Len() < n {
		f, x, y := name(), name(), name()
		fmt.Fprintf(&b, "// %s returns the %s of %s.\nfunc %s(%s []int, %s map[string]float64) (int, error) {\n", f, x, y, f, x, y)
		for range 1 + r.IntN(4) {
			z := name()
			fmt.Fprintf(&b, "\t%s := len(%s) + %d\n\tfor i := range %s {\n\t\tif %s[\"%s\"] >= 0x%X || i%%%d == 0 {\n\t\t\treturn %s, nil\n\t\t}\n\t}\n",
				z, x, r.IntN(1<<16), x, y, name(), r.IntN(1<<24), 2+r.IntN(30), z)
		}
		fmt.Fprintf(&b, "\treturn 0, fmt.Errorf(\"%s: %%w\", err%d)\n}\n\n", x, r.IntN(1000))
	}
	return b.String()
}
