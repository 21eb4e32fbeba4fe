"""Mixed text for tokenizer comparisons: deterministic for a seed, any number of records."""
import glob
import random

WORDS = ("the of and to in is that it was for on as with his they at be this from have or by one had not but what all "
         "were when we there can an your which their said if do will each about how up out them then she many some so "
         "these would other into has more her two like him see time could no make than first been its who now people "
         "my made over did down only way find use may water long little very after words called just where most know "
         "tokenizer byte-pair encoding sparse attention window expert router quantised perplexity don't I'm we'll it's "
         "You've CAPITALS MixedCase snake_case camelCase HTTPServer foo123bar naïve café résumé Ünïcödé "
         "straße Ελληνικά русский язык عربى עברית हिन्दी ไทย 한국어 ជាភាសា tiếng Việt").split(" ")
HAN = ("的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而方后多定行学法所民得经十三之进着等"
       "部度家电力里如水化高自二理起小物现实加量都两体制机当使点从业本去把性好应开它合还因由其些然前外天政四日那社义事平形相全表间样与关各重新线内数"
       "正心反你明看原又么利比或但质气第向道命此变条只没结解问意建月公无系军很情者最立代想已通并提直题党程展五果料象员革位入常文总次品式活设及管特件"
       "长求老头基资边流路级少图山统接知较将组见计别她手角期根论运农指几九区强放决西被干做必战先回则任取据处队南给色光门即保治北造百规热领七海口东导"
       "器压志世金增争济阶油思术极交受联什认六共权收证改清己美再采转更单风切打白教速花带安场身车例真务具万每目至达走积示议声报斗完类八离华名确才科张"
       "信马节话米整空元况今集温传土许步群广石记需段研界拉林律叫且究观越织装影算低持音众书布复容儿须际商非验连断深难近矿千周委素技备半办青省列习响约"
       "支般史感劳便团往酸历市克何除消构府称太准精值号率族维划选标写存候毛亲快效斯院查江型眼王按格养易置派层片始却专状育厂京识适属圆包火住调满县局照"
       "参红细引听该铁价严龍龜鿕㐀𠀀〇")
KANA = "あいうえおかきくけこがぎぐゝゞーアイウエオカキクケコヴヺ・ヽヾ゛゜ゟヿ゠゙゚"
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "❤️", "🇩🇪", "1️⃣", "🤖", "✨", "☃️", "♻", "©", "®", "™", "🫠", "🪿"]
COMBINING = ["e\u0301", "n\u0303", "a\u0328\u0301", "\u0301", "\u0600", "क्षि", "ก็", "Z\u0351\u036b\u0343\u0319A\u0334\u0335\u031c",
             "\u200d", "\u200b", "\ufe0f", "\u034f", "ㅎㅏㄴ"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\x1c", "\u180e",
          "\x0b", "\x0c", "        ", " \t \n\r\n  ", "\u2003 "]
CONTROL = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜", "<｜",
           "｜>", "<｜User", "<|User|>", "<｜▁pad▁｜>", "<<think>>", "</｜DSML｜ calls>", "<｜tool▁calls▁begin｜>", "<｜fim▁hole｜>"]
PUNCT = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + [
    "...", "'s", "?!", "——", "“", "”", "，", "。", "！", "『", "』", "€", "£5", "±", "√2", "≠", "→", "--",
    "//", "/*", "*/", "#include", "();", "{}", "=>", "::", "&&", "<!--"]


def number(r):
    return r.choice([str(r.randrange(10 ** r.randint(1, 12))), f"{r.uniform(-1e4, 1e4):.3f}", "٣٤٥٦", "Ⅷ", "½", "²³", "𝟙𝟚𝟛𝟜",
                     "०१२३", "㊿", "1,234,567.89", "0x1F"])


def any_character(r):
    while True:
        c = r.randrange(r.choice([0x80, 0x250, 0x3100, 0x10000, 0x20000, 0x110000]))
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def code_lines(root="."):
    lines = []
    for pattern in ("src/**/*.cc", "src/**/*.h", "models/**/*.py", "**/*.md", "cmake/*.cmake"):
        for path in sorted(glob.glob(root + "/" + pattern, recursive=True)):
            if "/build/" not in path:
                with open(path, encoding="utf-8", errors="ignore") as f:
                    lines += f.read().split("\n")
    return lines


def record(r, lines, with_control):
    kind = r.randrange(8)
    parts = []
    size = r.choice([1, 3, 8, 20, 60, 200])
    if kind == 0:
        parts = [r.choice(WORDS) + r.choice([" ", " ", " ", ", ", ". ", "\n", "  "]) for _ in range(size)]
    elif kind == 1:
        parts = ["".join(r.choice(HAN) for _ in range(r.randint(1, 12))) + r.choice("，。！？；：、 \n") for _ in range(size)]
    elif kind == 2 and lines:
        k = r.randrange(len(lines))
        parts = ["\n".join(lines[k:k + size])]
    elif kind == 3:
        parts = ["".join(any_character(r) for _ in range(size))]
    elif kind == 4:
        parts = ["".join(r.choice(KANA + "漢字1 a-") for _ in range(size))]
    else:
        pools = [WORDS, EMOJI, COMBINING, SPACES, PUNCT, list(HAN), list(KANA)] + ([CONTROL] if with_control else [])
        for _ in range(size):
            k = r.randrange(len(pools) + 2)
            parts.append(number(r) if k == len(pools) else any_character(r) if k > len(pools) else r.choice(pools[k]))
    return "".join(parts)


def corpus(seed, total_bytes, root=".", with_control=True, use_files=True):
    r, out, size = random.Random(seed), [], 0
    lines = code_lines(root) if use_files else []
    while size < total_bytes:
        t = record(r, lines, with_control)
        out.append(t)
        size += len(t.encode())
    return out
