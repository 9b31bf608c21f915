//! Words that say nothing about what is looked for. They are indexed like all others; only a query leaves them out, and
//! keeps them when it has nothing else (`the who`, `to be or not to be`). This is the one list; words are
//! compared in their accentless form. Words that often name things (`can` the tin, `may` the month) are left out.

use std::sync::LazyLock;

use super::normal;

const WORDS: &[(&str, &str)] = &[
    (
        "en",
        "a about above after again against all also am an and any are arent as at be because been before being below \
      between both but by cannot cant could couldnt did didnt do does doesnt doing dont down during each few for from \
      further had hadnt has hasnt have havent having he her here hers herself him himself his how i if in into is isnt \
      it its itself just let me more most my myself no nor not of off on once only or other our ours ourselves out over \
      own same shall she should shouldnt so some such than that the their theirs them themselves then there these they \
      this those through to too under until up upon us very was wasnt we were werent what when where which while who \
      whom whose why will with wont would wouldnt you your yours yourself",
    ),
    (
        "de",
        "aber alle allem allen aller alles als also am an ander andere anderen anderer anderes auch auf aus bei beim bin \
      bis bist da damit dann das dass dein deine dem den denn der des dich die dies diese diesem diesen dieser dieses dir \
      doch dort du durch ein eine einem einen einer eines er es etwas euer fur hat hatte hatten hier hin hinter ich ihm \
      ihn ihnen ihr ihre ihrem ihren ihrer im in indem ins ist ja jede jedem jeden jeder jedes jene jener kann kein keine \
      keinem keinen keiner man mein meine mich mir mit nach nicht nichts noch nun nur ob oder ohne sehr sein seine seinem \
      seinen seiner sich sie sind so solche solcher sondern sonst soll um und uns unser unter viel vom von vor wann war \
      waren warum was wegen weil welche welchem welchen welcher welches wenn wer werden wem wen wessen wie wieder wieviel \
      wir wird wo wurde wurden zu zum zur zwar zwischen uber",
    ),
    (
        "fr",
        "a afin ai ainsi alors apres au aucun aucune aussi autre autres aux avaient avait avant avec avez avoir avons \
      bien car ce ceci cela celle celles celui cependant certains ces cet cette ceux chaque chez ci combien comme comment \
      contre dans de depuis des donc dont du elle elles en encore entre es est et etaient etait ete etes etre eu eux fait \
      fut furent ici il ils je jusque la laquelle le lequel les lesquelles lesquels leur leurs lors lui ma mais me meme \
      mes moi mon ne ni nos notre nous on ont ou par parce pas peu peut plus pour pourquoi quand que quel quelle quelles \
      quels qui quoi sa sans se selon ses si sien son sont sous suis sur ta te tes toi ton tous tout toute toutes tres tu \
      un une vers vos votre vous y",
    ),
    (
        "es",
        "a al algo algun alguna algunas alguno algunos ante antes aquel aquella aquellas aquellos aqui asi aun aunque \
      bajo bien cada como con contra cual cuales cualquier cuando cuanta cuantas cuanto cuantos de del desde donde dos \
      durante e el ella ellas ellos en entre era eran eres es esa esas ese eso esos esta estaba estan estar estas este \
      esto estos fue fueron ha habia habian han hasta hay la las le les lo los mas me mi mientras mis mucho muchos muy \
      nada ni no nos nosotros nuestra nuestro o os otra otras otro otros para pero poco por porque que quien quienes se \
      sea ser si sido sin sobre son su sus tambien tan tanto te tiene tienen toda todas todo todos tu tus un una unas \
      uno unos y ya yo",
    ),
    (
        "it",
        "a ad agli ai al alcuni alla alle allo anche ancora avere aveva avevano c che chi ci cio come con contro cosa \
      cui da dagli dai dal dalla dalle dallo degli dei del della delle dello di dopo dove due e ed era erano essere fino \
      fra fu furono gli ha hai hanno ho i il in io la le lei li lo loro lui ma mi mia mie miei mio ne negli nei nel nella \
      nelle nello noi non nostra nostro o ogni per perche piu po poi prima qual quale quali quando quanta quante quanti \
      quanto quasi quella quelle quelli quello questa queste questi questo qui se sei si sia siamo siete sono sta stata \
      stati stato su sua sue sugli sui sul sulla sulle sullo suo suoi te ti tra tu tua tuo tutti tutto un una uno vi voi",
    ),
    (
        "pt",
        "a ao aos aquela aquelas aquele aqueles aquilo as ate cada com como contra da das de dela delas dele deles \
      depois desde do dos e ela elas ele eles em entre era eram essa essas esse esses esta estao estas estava este estes \
      eu foi foram ha isso isto ja lhe lhes mais mas me mesmo meu meus minha minhas muito na nao nas nem no nos nossa \
      nosso num numa o onde os ou para pela pelas pelo pelos por porque qual quais quando quanta quantas quanto quantos \
      que quem se sem ser seu seus sido so sob sobre sua suas tambem te tem tinha toda todas todo todos tu um uma umas \
      uns voce voces",
    ),
    (
        "nl",
        "aan al alle als ben bij daar dan dat de der deze die dit doch doen door dus een er ge geen haar had heb hebben \
      heeft hem het hier hij hoe hoeveel hun ik in is ja je kan kon kunnen maar me meer men met mij mijn moet na naar niet \
      niets nog nu of om omdat onder ons ook op over reeds te tegen toch toen tot u uit uw van veel voor waar waarom wanneer \
      want waren was wat welk welke werd werden wie wij wil worden wordt zal ze zei zelf zich zij zijn zo zonder zou",
    ),
    (
        "ru",
        "а без более бы был была были было быть в вам вас весь во вот все всего всех вы где да даже для до его ее если \
      есть еще же за здесь и из или им их к как какая какие какой каком каких ко когда кого кому которая которого которой \
      которые который которых кто ли либо между меня мне может мы на над надо наш не него нее нет ни них но ну о об однако \
      он она они оно от очень по под после потому почему при про с сам себя сколько со так также такой там те тем то того \
      тоже той только том тот ты у уже чего чей чем что чтобы чье чья эта эти это этого этой этом этот я",
    ),
    (
        "uk",
        "а або але без би був була були було бути в вас ви від він вона вони вони вже все всі де для до його його з за \
      зі і й із їх її коли котрий хто ким кого як яка яке який які якого якої якій якому ми мене на над нас не ні них ну о \
      об от перед під по при про та так також там те ти то того тому той тільки у це цей ця чи чому що щоб я скільки",
    ),
    (
        "sv",
        "alla allt an att av blev bli blir da de dem den denna deras dess det detta dig din dina du efter ej eller en er \
      ett fran for ha hade han hans har henne hennes hon honom hur har i icke ingen inom inte ja jag kan kunde man med \
      mellan men mig min mina mot mycket nagon nagot nagra nar ni nu och om oss pa sa sadan sig sin sina ska skulle som till \
      under upp ut utan vad var vara varfor varit vars vart vem vi vid vilka vilken vilket",
    ),
    (
        "da",
        "af alle alt anden at blev blive bliver da de den denne der deres det dette dig din disse dog du efter eller en er \
      et for fra ham han hans har havde have hende hendes her hos hun hvad hvem hver hvilke hvilken hvilket hvis hvor hvordan \
      hvorfor hvornar i ikke ind jeg jer kan kunne man mange med meget men mig min mine mit mod ned noget nogle nu og ogsa om \
      op os over pa selv sig sin sine skal skulle som sadan til ud under var ved vi vil ville vor vaere vaeret",
    ),
    (
        "no",
        "alle at av bare ble bli blir da de deg den denne der dere deres det dette di din disse du eller en enn er et ett \
      etter for fordi fra ha hadde han hans har hennes her hos hun hva hvem hver hvilke hvilken hvilket hvis hvor hvordan \
      hvorfor i ikke inn ja jeg kan kom kunne man mange med meg men mer mest min mitt mot ned noe noen na nar og ogsa om opp \
      oss over pa seg selv sin sine skal skulle slik som til ut under var ved vi vil ville var vaere vaert",
    ),
    (
        "fi",
        "ei eika en eli emme ette ettei etta han he hanen heidan ja jo johon joka jolla jonka jos jossa jota jotka kanssa \
      keta ketka koska kuin kuinka kuka kun lisaksi me mika mikä miksi milla milloin minka mina missa mista mita mitka moni \
      mutta myos ne niin niita no nyt ole oli olivat on olla ollut olen oma ovat se sen seka siella siina sina sita tai te \
      tama taman tuo tassa vaan vai vain viela voi",
    ),
    (
        "pl",
        "a aby albo ale ani az bardzo bez bo by byc byl byla bylo byly ci co czy dla do gdy gdzie go i ich ile im inne iz \
      ja jak jaka jaki jakie jakim jako je jego jej jemu jest jeszcze jesli juz kiedy kto ktora ktore ktorego ktorej ktory \
      ktorych ktorzy lub ma maja mi mnie moze na nad nas nawet nie nich niz no o od on ona one oni oraz po pod poniewaz przed \
      przez przy raz sa sie tak takie takze tam te tego tej ten to tu tych tylko tym u w wam was we wiec wszystko z za ze \
      zeby",
    ),
    (
        "cs",
        "a aby aj ale ani asi az bez bude budou by byl byla byli bylo byt ci co cz dle do ho i ja jak jaka jake jaky je \
      jeho jej jeji jejich jen jenz jeste ji jine jiz jsem jsme jsou jste k kam kde kdo kdy kdyz ke kolik ktera ktere ktery \
      kteri ma mezi mi mit muze my na nad nam ne nebo neni nez nic o od on ona oni po pod podle pokud pouze pro proc proto \
      protoze pred pri s se si sve ta tak take tam te tedy ten teto ti to toho tohoto tom tomto tu tuto ty u uz v vam vas \
      ve vsak vy z za ze",
    ),
    (
        "tr",
        "acaba ama ancak artik asla ayrica bana bazi belki ben beni benim bile bir biri biz bu buna bunda bundan bunu bunun \
      cok cunku da daha dahi de defa degil diye en eger gibi hangi hem hep hepsi her hic icin ile ise kac kadar ki kim kime \
      kimi kimin mi mu na nasil ne neden nerde nerede nereye niye o olan olarak oldu olup on ona ondan onlar onu onun oysa \
      sen siz su tum uzere var ve veya ya yani yok",
    ),
    (
        "el",
        "αι αν απο αυτα αυτες αυτη αυτο αυτοι αυτος αυτου αυτων για δε δεν εαν ειμαι ειναι εκεινα εκεινη εκεινο εκεινος ενα \
      ενας ενω επι η ηταν θα ισως κ και κατα κι μα με μετα μη μην μια να ο οι ομως οπως οσο οτι ουτε παρα ποια ποιες ποιο \
      ποιοι ποιος ποσα ποσο που προς πως σαν σε στα στη στην στις στο στον στους στων τα την της τι τις το τον του τους των",
    ),
    (
        "ar",
        "ان او اي اين اذا الا التي الذي الذين الى اما انا انت انه انها او اول ب بعد بعض بل بين تلك تم ثم حتى حول حيث خلال \
      ذلك عليه علي على عن عند عندما غير ف في فيه فيها قد قبل ك كان كانت كل كم كما كيف ل لا لدى لقد لكن لم لماذا له لها ليس ما \
      ماذا متى مع من منذ منه منها مثل نحن هذا هذه هل هم هنا هناك هو هي و وهو وهي يكون يمكن",
    ),
    (
        "fa",
        "از اما ان اگر اي اين با باید بر برای بود به بي تا تو چرا چه چون چي چند خود در دو را روي شد شده شود كه كرد كرده كجا كدام \
      كسي گفت ما من مي نه نيز نيست هر هم و يا يك است او انها ايا هست هستند",
    ),
    (
        "he",
        "אבל או אולי אותה אותו אותי אז אין איך אל אלה אם אני אנחנו אף אשר את אתה אתם בין גם די הוא היא היה היו הם הן הזה הזאת \
      הייתה זאת זה זו יש כי כל כמו כמה כן לא לו לי לה להם לפני מה מי מאין מדוע מן מתי נגד עד על עם עוד של שם שלו שלה רק",
    ),
    (
        "hi",
        "अपना अपनी अपने अभी आदि आप इस इसका इसकी इसके इसे उन उनका उनकी उनके उस उसका उसकी उसके उसे एक एवं और कब कर करता करते करना \
      का कि कितना कितने किया किस किसी की कुछ के को कोई कौन क्या क्यों कहाँ कैसे गई गए गया जब जहाँ जा जो तक तब तो था थी थे दिया दो न नहीं \
      ने पर पे बहुत भी में मैं यह यहाँ या यदि ये रहा रही रहे लिए वह वहाँ वे वाला वाली वाले से सब हम हर ही हुआ हुई हुए है हैं हो होता होती होते",
    ),
    (
        "id",
        "ada adalah agar akan aku anda apa apakah atas atau bagaimana bagi bahwa banyak beberapa berapa bisa bukan dalam dan \
      dapat dari dengan di dia hanya harus ia ini itu jika juga kami kamu kapan karena ke kepada kita lagi lain lebih maka \
      mana masih mengapa mereka namun oleh pada para saat saja sangat saya sebagai sebuah sejak semua seperti serta siapa \
      sudah suatu tapi telah tentang terhadap tersebut tetapi tidak untuk yaitu yang",
    ),
    (
        "vi",
        "ai bang bao bi boi ca cac cai can chi cho chu co cua cung da dau de den di do duoc gi hay hon khi khong la lai lam len \
      ma moi mot nao nay neu nhieu nhu nhung o phai qua ra rang rat sao sau se tai the theo thi thuoc tren trong tu va van vao \
      vi voi vua",
    ),
    (
        "th",
        "กับ การ ก็ ของ ขึ้น คง ครับ ความ ค่ะ คือ จะ จาก ซึ่ง ด้วย ดัง ได้ ต้อง ตั้งแต่ ตาม แต่ ถึง ถ้า ที่ ทำไม ทั้ง นั้น นี้ ใน โดย บน \
      เป็น ไป เพราะ เพื่อ มา มี เมื่อ แม้ ไม่ ยัง ย่อม ระหว่าง และ แล้ว ว่า สำหรับ หรือ หาก ให้ อย่าง อยู่ อะไร อีก ใคร ไหน ใด เท่าไร เท่าใด \
      เมื่อไร เมื่อไหร่ อย่างไร กี่",
    ),
];

/// Function characters of Chinese, both ways of writing. A pair of two of them says nothing either (`是什`, `什么`).
const CHINESE: &str = "的了吗呢吧着们嗎著們是在和与與或及也都就而但被把对對于於从從到为為以之其此这這那哪些有没沒什么麼怎谁誰何几幾很";

/// Endings and particles of Japanese and question words and endings of Korean, as pairs.
const PAIRS: &[(&str, &str)] = &[
    (
        "ja",
        "あり ある いう いた いて いま いる いつ うか うに えば おい おけ おり がら から かれ くら けど けれ ここ こと この これ さい させ \
      され しい した して しま する すか すが すべ せた せる そう そこ その それ たい ただ たち ため たら だけ だっ だれ つい つた って では です \
      ても でも とい とき とし とな との とは とも どう どこ どの どれ ない なお なか など なぜ なに なの なる なっ なり なん にお には にも によ \
      ので のに のは ばれ ほど まし ます ませ また まで まれ もの よう より よっ らい られ れい れた れて れば れる ろう わせ をし んか んだ んで いく くつ \
      すか てい いま はど はな でし の は が を に で と も へ や か な ね よ た",
    ),
    (
        "ko",
        "무엇 엇을 엇인 엇이 어떤 어디 디에 누구 누가 언제 어떻 떻게 그리 리고 그러 러나 하지 지만 있는 있다 하는 하다 한다 합니 니다 습니 \
      입니 니까 인가 는가 였는 었는 했는 에서 으로 이다 것은 것이 것을 대한 대해 위한 위해 통해 몇",
    ),
];

static SORTED: LazyLock<Vec<(&'static str, Vec<String>)>> = LazyLock::new(|| {
    let lists = WORDS.iter().chain(PAIRS);
    lists
        .map(|(code, list)| {
            let mut words: Vec<_> = list.split_whitespace().map(normal::text).collect();
            words.sort_unstable();
            (*code, words)
        })
        .collect()
});

fn listed(code: &str, word: &str) -> bool {
    SORTED
        .iter()
        .any(|(of, words)| *of == code && words.binary_search_by(|listed| listed.as_str().cmp(word)).is_ok())
}

/// Whether an accentless word is a stop word of the language.
pub(super) fn word(code: &str, word: &str) -> bool {
    listed(code, word)
}

/// Whether a character or pair of a Chinese, Japanese or Korean run is one.
pub(super) fn pair(code: &str, term: &str) -> bool {
    match code {
        "zh" => term.chars().all(|c| CHINESE.contains(c)),
        _ => listed(code, term),
    }
}

/// The language whose stop words the text holds most of, when they are two at least and no other has as many.
pub(super) fn most(text: &str) -> Option<&'static str> {
    let text = normal::text(text);
    let words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let votes = |list: &[String]| {
        words.iter().filter(|word| list.binary_search_by(|listed| listed.as_str().cmp(word)).is_ok()).count()
    };
    let mut best = (None, 1);
    for (code, list) in SORTED.iter() {
        let count = votes(list);
        if count > best.1 {
            best = (Some(*code), count);
        } else if count == best.1 && count > 1 {
            best.0 = None;
        }
    }
    best.0
}
