package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// tongue makes sentences of one language (or of code) from parts of our own.
type tongue struct {
	name    string
	pattern string // %s: a subject, a verb and an object, in the language's order
	subject []string
	verb    []string
	object  []string
}

func tongues() []tongue {
	return []tongue{
		{"English", "%s %s %s. ", []string{"The old lighthouse keeper", "A quiet engineer", "My neighbour's cat", "Nobody in the village"}, []string{"repaired", "couldn't find", "carefully counted", "had forgotten"}, []string{"the 42 brass lamps", "a map of the harbour", "every letter (even yours)", "what the tide brought in 1987"}},
		{"German", "%s %s %s. ", []string{"Die Bäckerin aus Köln", "Der müde Schaffner", "Unser Großvater"}, []string{"überprüfte", "vergaß", "zählte mehrmals"}, []string{"die Straßenbahnfahrpläne", "das weiße Mehl", "alle Schlüssel für die Übergänge"}},
		{"French", "%s %s %s. ", []string{"L'horloger d'Évreux", "Une élève curieuse", "Le garçon de café"}, []string{"n'a jamais oublié", "réparait", "dessinait à côté de"}, []string{"l'aiguille cassée", "la forêt où naît l'été", "ces œuvres d'autrefois"}},
		{"Spanish", "¿%s %s %s? ", []string{"El niño", "La señora Ibáñez", "Aquel pingüino"}, []string{"encontró", "soñaba con", "construyó"}, []string{"el corazón del río", "una montaña pequeña", "mañanas sin reloj"}},
		{"Russian", "%s %s %s. ", []string{"Старый мельник", "Учительница физики", "Никто из нас"}, []string{"не помнил", "внимательно изучал", "починила"}, []string{"карту северных рек", "шестнадцать писем", "будильник на подоконнике"}},
		{"Greek", "%s %s %s. ", []string{"Ο ψαράς", "Η δασκάλα", "Το παιδί"}, []string{"ζωγραφίζει", "θυμάται", "μετράει"}, []string{"το κύμα", "την παλιά γέφυρα", "όλα τα αστέρια"}},
		{"Chinese", "%s%s%s。", []string{"老船长", "图书馆的管理员", "隔壁的猫"}, []string{"仔细地数着", "忘记了", "修好了"}, []string{"三十二盏灯", "去年的地图", "每一封没有寄出的信"}},
		{"Japanese", "%sは%sを%s。", []string{"駅員さん", "静かな技術者", "隣の猫"}, []string{"古い時計", "八月の手紙", "港の地図"}, []string{"直しました", "忘れていた", "ゆっくり数えた"}},
		{"Korean", "%s %s %s. ", []string{"늙은 등대지기는", "조용한 학생이", "우리 할머니께서"}, []string{"낡은 시계를", "바다의 지도를", "모든 편지를"}, []string{"고치셨다", "잊어버렸다", "천천히 세어 보았다"}},
		{"Arabic", "%s %s %s. ", []string{"حارس المنارة", "المهندسة الهادئة", "قطة الجيران"}, []string{"أصلح", "نسيت", "تعد ببطء"}, []string{"المصابيح القديمة", "خريطة الميناء", "كل الرسائل"}},
		{"Hindi", "%s %s %s। ", []string{"बूढ़ा नाविक", "पड़ोस की बिल्ली", "एक शांत छात्रा"}, []string{"पुरानी घड़ी", "समुद्र का नक्शा", "सारी चिट्ठियाँ"}, []string{"ठीक करता है", "भूल गई", "धीरे-धीरे गिनती है"}},
		{"code", "func %s() int {\n\treturn %s + %s\n}\n\n", []string{"countLamps", "tide2Metres", "parse_v3"}, []string{"len(xs)<<2", "0xFF&mask", "s[i:j+1]...x"}, []string{"1_000", "\"a\\tb\\n\"", "(y != nil && z >= 3.14e-9)"}},
		{"emoji", "%s %s %s!! ", []string{"👩‍🚀 she", "🐈‍⬛ it", "🇨🇭 they"}, []string{"❤️ loves", "👍🏽 likes", "🤷 ignores"}, []string{"🧀🧀🧀", "the 🌊…", "café ☕️ 1️⃣2️⃣"}},
	}
}

// document makes about n characters of text in a tongue, the same for the same
// seed and different for another from its first sentence on.
func document(lang tongue, seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 17))
	var b strings.Builder
	fmt.Fprintf(&b, "%s, No. %d. ", lang.name, seed)
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	for b.Len() < n {
		fmt.Fprintf(&b, lang.pattern, pick(lang.subject), pick(lang.verb), pick(lang.object))
		if r.IntN(9) == 0 {
			fmt.Fprintf(&b, "%d\n", r.IntN(1_000_000))
		}
	}
	return b.String()
}
