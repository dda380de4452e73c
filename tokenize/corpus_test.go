package tokenize

import (
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	"github.com/warmroute/warmroute/tokenize/tokenizetest"
)

// sampleTexts are texts in ten languages and some code, written for this test.
func sampleTexts() []string {
	return []string{
		"The router looks at the beginning of every prompt and sends it to the worker that has seen it before. It's quick, isn't it? They'll say we've done it; I'd agree.",
		"Der Verteiler prüft den Anfang jeder Anfrage und schickt sie dorthin, wo sie schon bekannt ist. Größe: 12.345,67 €, Straße Nr. 8.",
		"L’aiguilleur lit le début de chaque requête et l’envoie là où elle est déjà connue. Ça va ? Où ça ? À l’été 2026 !",
		"El encaminador mira el principio de cada petición: ¿quién la conoce ya? ¡Enviémosla allí! Año 2026, 3.º piso.",
		"Маршрутизатор смотрит на начало запроса и отправляет его туда, где оно уже известно. Цена — 1 234 ₽.",
		"路由器查看每个请求的开头,并把它送到已经见过它的那台机器。今天是2026年12月1日,温度23度。",
		"ルーターは各リクエストの先頭を見て、既に知っている機械へ送ります。1,234円です。カタカナとひらがな。",
		"라우터는 모든 요청의 앞부분을 보고 이미 알고 있는 기계로 보냅니다. 가격은 1,234원입니다.",
		"الموجّه ينظر إلى بداية كل طلب ويرسله إلى الجهاز الذي يعرفه من قبل. السعر ١٢٣٤ ريالًا.",
		"राउटर हर अनुरोध की शुरुआत देखता है और उसे वहाँ भेजता है जहाँ वह पहले से ज्ञात है। मूल्य ₹१,२३४।",
		"เราเตอร์ดูจุดเริ่มต้นของทุกคำขอ แล้วส่งไปยังเครื่องที่รู้จักมันแล้ว ราคา ๑๒๓ บาท",
		"func pick(xs []int) (int, error) {\n\tif len(xs) == 0 {\n\t\treturn 0, errors.New(\"none\")\n\t}\n\n\tfor i, x := range xs { // TODO: 'll\n\t\t_ = i<<3 ^ x&0xFF\n\t}\n\treturn xs[0], nil\n}\n",
		"def f(x: list[int]) -> dict:\r\n    \"\"\"Doc's text.\"\"\"\r\n    return {k: v for k, v in enumerate(x) if v != 0}  # ok\r\n\r\n\r\n",
		"SELECT a.id,   b.name FROM t_a AS a LEFT JOIN t_b b ON a.id=b.id WHERE b.name LIKE '%x%' AND a.n>=10000;\n\n\n",
		"👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ☂️ e\u0301 a\u0308o\u0308 \u200b\u200d\ufeff 𝒳𝓎 ⅷ ² ½ ٣٤ 한글",
	}
}

// atoms are pieces that meet at the borders of the tokenizer's rules.
func atoms() []string {
	return []string{
		"'s", "'S", "'ſ", "'re", "'LL", "'vE", "'m", "'D", "'x", "'", " ", "  ", "   ", "\n", "\r\n", "\r", "\t", "\v", "\f",
		"\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "\u200b", "\ufeff", "\x1c", "\x00", "\x7f",
		"a", "Hello", " world", "é", "漢字", "ſ", "İ", "1", "123", "4", "٣", "²", "ⅷ", "!", "..", "_", "“", "—", "👍🏽", "\u0301", "𝒳",
		"<|eot_id|>", "<|begin_of_text|>", "<|", "|>", "<|eot", "_id|>", "<|x|>", "<", ">",
		strings.Repeat(" ", 30), strings.Repeat("a", 60), strings.Repeat("é", 40), strings.Repeat("=", 50), strings.Repeat("\n", 9),
	}
}

// randomText is a text of one of several kinds, of up to about 200 bytes.
func randomText(r *rand.Rand) string {
	var b strings.Builder
	switch r.IntN(5) {
	case 0, 1:
		list := atoms()
		for range 1 + r.IntN(14) {
			b.WriteString(list[r.IntN(len(list))])
		}
	case 2:
		for range 1 + r.IntN(24) {
			b.WriteRune(randomRune(r))
		}
	case 3:
		const letters = "abcdefghijklmnop  ABZ01\n'.,"
		for range 1 + r.IntN(120) {
			b.WriteByte(letters[r.IntN(len(letters))])
		}
	case 4: // pieces of real text, cut anywhere
		list := sampleTexts()
		for range 1 + r.IntN(4) {
			runes := []rune(list[r.IntN(len(list))])
			from := r.IntN(len(runes))
			b.WriteString(string(runes[from:min(len(runes), from+1+r.IntN(40))]))
		}
	}
	return b.String()
}

func randomRune(r *rand.Rand) rune {
	var c rune
	switch r.IntN(6) {
	case 0:
		c = rune(r.IntN(0x80))
	case 1:
		c = rune(r.IntN(0x600))
	case 2:
		c = rune(r.IntN(0x3100))
	case 3:
		c = rune(r.IntN(0x10000))
	case 4:
		c = rune(r.IntN(utf8.MaxRune + 1))
	default:
		c = []rune(" \n\r'a1.\u3000")[r.IntN(8)]
	}
	if !utf8.ValidRune(c) {
		return ' '
	}
	return c
}

// longText is n bytes or a little more of running text.
func longText(r *rand.Rand, n int) string {
	var b strings.Builder
	list := sampleTexts()
	for b.Len() < n {
		if r.IntN(8) == 0 {
			b.WriteString(randomText(r))
		} else {
			b.WriteString(list[r.IntN(len(list))])
		}
		b.WriteString([]string{" ", "\n", "\n\n", ""}[r.IntN(4)])
	}
	return b.String()
}

// prose is n bytes or a little more of English-like sentences in which no
// paragraph comes twice.
func prose(r *rand.Rand, n int) string { return tokenizetest.Prose(r, n) }
