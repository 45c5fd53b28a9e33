package text

import (
	"strings"
	"unicode"
)

// Skeleton returns what a text shares with those that a person may take for it: texts that differ
// in white space at the ends or in its amount, in case, in width, in normal form, or in letters of
// Latin, Greek and Cyrillic, or digits, that look alike. It is for comparison only. It knows the
// composed letters of Latin languages; others it keeps, and so misses some normal forms.
func Skeleton(text string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(text), " ") {
		if '\uff01' <= r && r <= '\uff5e' { // full width
			r -= '\uff01' - '!'
		}
		letters, composed := decomposed[r]
		if !composed {
			letters = [2]rune{r}
		}
		letter := unicode.ToLower(letters[0])
		if same, found := alike[letter]; found {
			letter = same
		}
		if b.WriteRune(letter); composed {
			b.WriteRune(letters[1])
		}
	}
	return b.String()
}

// alike has lower-case letters and digits, and the Latin letters that look like them in some font.
var alike = pairs("аaвbеeкkмmнhоoрpсcтtуyхxѕsіiјjһhԁdԛqԝwαaβbεeζzηnιiκkνvοoρpτtυuχxıi0o1l")

func pairs(text string) map[rune]rune {
	all, letters := map[rune]rune{}, []rune(text)
	for i := 0; i < len(letters); i += 2 {
		all[letters[i]] = letters[i+1]
	}
	return all
}

// decomposed has composed letters: the letter, and its combining mark.
var decomposed = func() map[rune][2]rune {
	all := map[rune][2]rune{}
	for mark, letters := range map[rune]string{
		'\u0300': "ÀAÈEÌIÒOÙUàaèeìiòoùuǸNǹn",
		'\u0301': "ÁAÉEÍIÓOÚUÝYáaéeíióoúuýyĆCćcĹLĺlŃNńnŔRŕrŚSśsŹZźz",
		'\u0302': "ÂAÊEÎIÔOÛUâaêeîiôoûuĈCĉcĜGĝgĤHĥhĴJĵjŜSŝsŴWŵwŶYŷy",
		'\u0303': "ÃAÑNÕOãañnõoĨIĩiŨUũu",
		'\u0304': "ĀAāaĒEēeĪIīiŌOōoŪUūu",
		'\u0306': "ĂAăaĔEĕeĞGğgĬIĭiŎOŏoŬUŭuЙИйи",
		'\u0307': "ĊCċcĖEėeĠGġgİIŻZżz",
		'\u0308': "ÄAËEÏIÖOÜUäaëeïiöoüuÿyŸYЁЕёеЇІїі",
		'\u030a': "ÅAåaŮUůu",
		'\u030b': "ŐOőoŰUűu",
		'\u030c': "ČCčcĎDďdĚEěeŇNňnŘRřrŠSšsŤTťtŽZžz",
		'\u0327': "ÇCçcĢGģgĶKķkĻLļlŅNņnŖRŗrŞSşsŢTţt",
		'\u0328': "ĄAąaĘEęeĮIįiŲUųu",
	} {
		for letter, base := range pairs(letters) {
			all[letter] = [2]rune{base, mark}
		}
	}
	return all
}()
