"""What people write before numbers of records and people, by kind and language: data for `identifiers`.

A label is one to four words in small letters, without accents, points and signs of number (`fold`). Explicit labels name the number
itself (`MRN`, `NASS`): whatever stands right behind one is a number of that kind. Plain ones name a thing that has a number
(`order`, `case`): they count with a word or sign of number behind them (`order #`, `case no.`, `pedido nº`), with a colon, or before a
value of letters and digits (`order ORD-20331`).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from corpusmill.pipeline.redact import Kind

# kind: explicit labels | plain labels. A comma parts them.
_TABLE: dict[Kind, str] = {
    "patient_id": """
        mrn, nhc, n h c, nhi, chi, nhs, nhs no, hospital no, hospital number, hosp no, unit record, pt id, medical record, medical record no, health record, patient record, hospital record, chart, patient id,
        patient identifier, patient identification, patientid, patient file, medical file, health card, health insurance id, health plan,
        health plan id, health plan beneficiary, hpbn, beneficiary id, medicare, medicaid, medicare id, mbi, umrn, ehr, emr, ehr id, emr id, subject id,
        specimen id, accession, historia clinica, numero de historia, numero historia, no historia, historia, historial, hc, h c, cipa, cip, cias, sip, tis, tsi, tarjeta sanitaria,
        nuhsa, nuss, num historia, episodio, cip sns, identificador del paciente, numero de paciente, prontuario, numero do prontuario, cns, cartao sus,
        cartao nacional de saude, numero de utente, utente, n utente, numero sns, sns, dossier medical, numero de dossier medical, dossier patient, ipp, nip patient, patienten nr,
        patientennummer, patientennr, patienten id, fallnummer klinik, krankenakte, aufnahmenummer, versichertennummer, versicherten nr, krankenversichertennummer, kvnr, egk, cartella clinica, numero cartella,
        tessera sanitaria, patientnummer, patientnr, patient nr, patientnumber, zorgnummer, nr historii choroby, historia choroby, numer pacjenta,
        номер карты пациента, история болезни, истории болезни, медицинская карта, медкарта, амбулаторная карта, полис омс, омс,
        病历号, 病案号, 住院号, 门诊号, 病歷號, 医保卡号, カルテ番号, 診察券番号, 患者番号, 환자번호, 등록번호, رقم المريض, رقم الملف الطبي, مريض رقم, रोगी संख्या, मरीज संख्या
        | patient, paciente, patiente, paziente, pasient, pacjent, пациент, hospital id, medical, clinical record, admission, encounter, visit id
        """,
    "social_security": """
        ssn, social security, socialsecurity, social sec, social insurance, national insurance, nino, ni number, sin, social security no, nass, naf, nss, n ss, no ss, num ss, numero ss, seguridad social, numero seguridad social,
        numero de la seguridad social, numero de seguridad social, afiliacion, numero de afiliacion, afiliacion a la seguridad social, imss, seguranca social, niss, pis, pasep, nis, nit pis, securite sociale, numero de securite sociale,
        secu, insee, nir, sozialversicherungsnummer, sozialversicherungs nr, svnr, sv nummer, sv nr, rentenversicherungsnummer, rvnr, ahv, ahv nr, ahv nummer, avs, numero avs, registre national, rijksregisternummer, rrn, inps, previdenza sociale, codice fiscale, burgerservicenummer, bsn,
        personnummer, personnr, fodselsnummer, cpr nr, cpr, cpr nummer, henkilotunnus, hetu, pesel, снилс, страховой номер, 社会保障号, 社保号, 社保号码, مصرف الضمان, رقم الضمان الاجتماعي, 社会保険番号, マイナンバー, 주민등록번호
        | tin ssn
        """,
    "national_id": """
        dni, d n i, nie, n i e, dni nie, nif nie, documento nacional, documento nacional de identidad, documento de identidad, doc identidad, cedula, cedula de identidad, cedula de ciudadania, curp, rut, r u t, run, ine, clave de elector, cpf, rg,
        bilhete de identidade, cartao de cidadao, cartao do cidadao, carte d identite, carte nationale d identite, cni, numero de carte d identite, personalausweis, personalausweisnummer, ausweisnummer, ausweis nr, perso nr, carta d identita, carta identita, identiteitskaart, identity card, national id, national identity, id card, identity document, nric, fin, hkid, aadhaar, aadhar, pan, voter id, epic, dowod osobisty, dowodu, nr dowodu, osobni cislo,
        rodne cislo, cnp, emso, oib, jmbg, egn, tc kimlik, tc kimlik no, t c kimlik, kimlik, cccd, cmnd, nik, ktp, паспорт рф, 身份证, 身份证号, 身份证号码, 身分證字號, 身份證, 公民身份号码, هوية, رقم الهوية, الهوية الوطنية, الرقم القومي, کد ملی, कार्ड संख्या, आधार, आधार संख्या, पहचान संख्या
        | identidad, documento, identification
        """,
    "license_id": """
        ncol, no col, n col, num col, col n, colegiado, colegiada, no colegiado, n colegiado, numero de colegiado, numero colegiado, num colegiado, colegiado no, ncolegiado, npi, national provider identifier, dea, dea registration, medical license,
        medical licence, physician license, nursing license, professional license, professional licence, license, licence, licenses, state license, bar, bar id, state bar, gmc, nmc, gmc reference, gmc licence, gmc license, nmc pin, crm, coren, oab, rpps, numero rpps, adeli, lanr, bsnr, arztnummer, lebenslange arztnummer, iscrizione albo, numero albo, big nummer,
        big registratienummer, pwz, nr pwz, certificate, certification, certificate license, certificado, cedula profesional, matricula profesional, registration, certificateno, лицензия, 执业证书编号, 执业证号, 医師免許番号
        | registered nurse, pharmacist, notary
        """,
    "passport": """
        passport, passports, passport id, passportno, pasaporte, passaporte, passeport, reisepass, reisepassnummer, pass nr, passnummer, passaporto, paspoort, paspoortnummer, paszport, paszportu, cestovni pas, pass nr, passi, pasaport, ho chieu, paspor, diavatirio, διαβατηριο, паспорт, паспорта, загранпаспорт, 护照, 护照号, 护照号码, 護照, パスポート番号, 旅券番号, 여권번호, جواز السفر, رقم الجواز, گذرنامه, पासपोर्ट
        |
        """,
    "driver_license": """
        driver license, drivers license, driver s license, driver licence, drivers licence, driver s licence, driving license, driving licence, dl, dln, driver license id, drivers license id, license dl, permiso de conducir, carnet de conducir, licencia de conducir, licencia de manejo, cnh, carteira de motorista, carta de conducao, permis de conduire, numero de permis, fuhrerschein, fuhrerscheinnummer, fuhrerschein nr, patente di guida, numero patente, rijbewijs, rijbewijsnummer, prawo jazdy, korkort, korkortsnummer, водительское удостоверение, 驾照号, 驾驶证号, 運転免許証番号, 운전면허번호, رخصة القيادة
        |
        """,
    "tax_id": """
        tax id, taxid, tax identification, taxpayer, taxpayer id, taxpayer identification, tin, itin, ein, fein, atin, employer identification, federal tax id, federal tax, vat, vat id, vat reg, vat registration, abn, acn, gstin, gst, utr, nif, n i f, cif, c i f, rfc, nit, cuit, cuil, ruc, cnpj, nipc, contribuinte, numero de contribuinte, siren, siret, tva, numero de tva, numero tva, tva intracommunautaire, ust id, ust id nr, ust idnr, ustid, umsatzsteuer id, umsatzsteuer identifikationsnummer, uid, uid nr, steuernummer, steuer nr, st nr, steuer id, steueridentifikationsnummer, idnr, partita iva, p iva, piva, btw, btw nummer, btw nr, kvk, kvk nummer, nip, regon, ico, dic, cvr, cvr nr, orgnr, organisationsnummer, y tunnus, cui, adoszam, vergi no, vergi kimlik no, vkn, npwp, afm, αφμ, инн, огрн, кпп, едрпоу, 税号, 纳税人识别号, 统一社会信用代码, 統一編號, 法人番号, 사업자등록번호, الرقم الضريبي
        |
        """,
    "account_id": """
        account, account id, accountid, account no, acct, acct no, bank account, checking account, savings account, current account, routing, routing transit, aba, sort code, customer id, customerid, customer identification, customer reference, customer code, client id, client code, client reference, clientid, cif id, user id, userid, member id, memberid, membership, membership id, subscriber, subscriber id, subscription id, policy, policy id, policyholder id, insurance policy, insurance id, insurance, insurance code, insurance member id, loan, loan account, merchant id, swift account, iban account, loyalty, frequent flyer, cuenta, numero de cuenta, cuenta bancaria, cuenta corriente, n cuenta, num cuenta, cliente no, numero de cliente, codigo de cliente, poliza, numero de poliza, n poliza, num poliza, socio no, numero de socio, conta, conta corrente, numero da conta, agencia e conta, codigo do cliente, apolice, compte, numero de compte, compte bancaire, numero client, numero de client, code client, n client, police d assurance, numero de police, numero d adherent, adherent, kontonummer, konto nr, kontonr, konto, kundennummer, kunden nr, kundennr, kd nr, kdnr, vertragsnummer, vertrags nr, versicherungsnummer, versicherungs nr, policennummer, mitgliedsnummer, mitglieds nr, blz, bankleitzahl, conto corrente, numero conto, numero di conto, codice cliente, numero cliente, polizza, numero polizza, rekeningnummer, klantnummer, klant nr, polisnummer, lidnummer, numer konta, nr konta, numer klienta, nr klienta, numer polisy, nr polisy, kundnummer, kundenummer, kundnr, asiakasnumero, cislo uctu, hesap no, musteri no, musteri numarasi, номер счета, счет, расчетный счет, номер клиента, номер договора, номер полиса, 账号, 账户, 银行账号, 银行卡号, 客户编号, 会员号, 帳號, 口座番号, 会員番号, お客様番号, 계좌번호, 고객번호, رقم الحساب, رقم العميل, खाता संख्या, खाता नंबर
        | customer, client, member, user, cliente, kunde, klient, klant, contract, contrato, contrat, contratto, vertrag, socio, adherente, abonnement, клиент, договор
        """,
    "employee_id": """
        employee id, employeeid, employee no, employee identification, emp id, empid, emp no, staff id, staff no, personnel, personnel id, payroll, payroll id, worker id, badge, badge id, student id, studentid, student no, student identification, matriculation, enrollment id, enrolment id, faculty id, service id, officer id, numero de empleado, n empleado, legajo, numero de legajo, matricule, numero de matricule, numero etudiant, numero d etudiant, personalnummer, personal nr, personalnr, mitarbeiternummer, mitarbeiter nr, mitarbeiter id, matrikelnummer, matrikel nr, matricola, numero matricola, personeelsnummer, studentnummer, numer pracownika, numer albumu, табельный номер, номер зачетки, 工号, 学号, 员工编号, 學號, 社員番号, 学籍番号, 사번, 학번, رقم الموظف, الرقم الوظيفي
        | employee, empleado, staff, student, mitarbeiter, worker, teacher id
        """,
    "order_id": """
        order id, orderid, order no, order reference, order confirmation, ordernumber, purchase order, po, po no, sales order, work order, invoice, invoice id, invoiceid, invoice no, inv no, receipt, receipt no, transaction, transaction id, transactionid, txn id, txn, payment id, payment reference, confirmation, confirmation code, booking, booking id, booking reference, booking code, reservation, reservation id, reservation code, pnr, tracking, tracking id, tracking code, shipment, shipment id, consignment, waybill, awb, delivery note, parcel, rma, return authorization, quote no, bill no, numero de pedido, pedido no, n pedido, num pedido, numero pedido, codigo de pedido, numero de orden, orden de compra, factura, numero de factura, n factura, num factura, factura no, factura n, albaran, numero de albaran, localizador, numero de seguimiento, codigo de seguimiento, codigo de reserva, numero de reserva, numero do pedido, codigo de rastreio, codigo de rastreamento, fatura, numero da fatura, nota fiscal, nf e, commande, numero de commande, n commande, bon de commande, numero de facture, facture, facture n, n facture, numero de suivi, numero de reservation, numero de colis, bestellnummer, bestell nr, bestellnr, best nr, auftragsnummer, auftrags nr, auftragsnr, rechnungsnummer, rechnungs nr, rechnungsnr, rechnung, rechnung nr, re nr, lieferschein, lieferscheinnummer, lieferschein nr, sendungsnummer, sendungs nr, buchungsnummer, buchungs nr, buchungscode, buchungsnr, vorgangsnummer, numero ordine, numero d ordine, ordine n, ordine no, fattura, numero fattura, fattura n, numero di tracking, codice prenotazione, bestelnummer, bestel nr, ordernummer, factuurnummer, factuur, factuur nr, boekingsnummer, numer zamowienia, nr zamowienia, zamowienie nr, numer faktury, nr faktury, faktura nr, faktura, fakturanummer, fakturanr, ordrenummer, ordrenr, bestillingsnummer, tilausnumero, laskunumero, cislo objednavky, cislo faktury, siparis no, siparis numarasi, fatura no, ma don hang, nomor pesanan, no pesanan, nomor invoice, номер заказа, заказ, заказа, счет фактура, номер накладной, накладная, трек номер, номер бронирования, 订单号, 订单编号, 訂單編號, 运单号, 快递单号, 发票号码, 发票号, 流水号, 交易号, 注文番号, ご注文番号, 請求書番号, 予約番号, 주문번호, 송장번호, 예약번호, رقم الطلب, رقم الطلبية, رقم الفاتورة, رقم الحجز, ऑर्डर संख्या, चालान संख्या, شماره سفارش
        | order, ऑर्डर, pedido, orden, auftrag, bestellung, ordine, bestelling, zamowienie, beställning, payment, shipping, reserva, buchung, quote, quotation, delivery, purchase, refund
        """,
    "case_id": """
        case id, caseid, case no, case reference, case file, casefile, docket, docket no, civil action, cause no, court file, file reference, ticket id, ticket no, ticketid, support ticket, incident id, incident report, incident no, claim id, claim no, claimid, complaint id, complaint no, crime reference, police report, report no, fir no, matter no, service request, sr no, numero de caso, caso no, caso n, expediente, numero de expediente, n expediente, num expediente, expte, exp no, expediente n, autos, procedimiento, diligencias previas, atestado, siniestro, numero de siniestro, n siniestro, numero de reclamacion, processo, processo n, numero do processo, autos n, boletim de ocorrencia, protocolo, numero de protocolo, n dossier, dossier, numero de dossier, no dossier, ref dossier, numero de sinistre, sinistre, rg n, aktenzeichen, az, geschaftszeichen, gz, gesch z, aktennummer, akten nr, fallnummer, fall nr, schadennummer, schaden nr, schadensnummer, ticketnummer, ticket nr, vorgangs nr, numero pratica, pratica n, pratica, fascicolo, numero di ruolo, sinistro n, numero sinistro, zaaknummer, zaak nr, dossiernummer, dossier nr, schadenummer, kenmerk, numer sprawy, nr sprawy, sygn akt, sygnatura, sygnatura akt, malsnummer, mal nr, arendenummer, diarienummer, dnr, sagsnummer, sagsnr, saksnummer, saksnr, asianumero, spisova znacka, sp zn, dosya no, esas no, nomor perkara, номер дела, дело, дела, дело no, заявка, номер заявки, обращение, 案号, 案件编号, 工单号, 案件番号, 事件番号, 受付番号, 사건번호, 접수번호, رقم القضية, رقم البلاغ, رقم التذكرة, प्रकरण संख्या, केस नंबर, शिकायत संख्या, شماره پرونده
        | case, ticket, incident, claim, complaint, caso, cas, fall, sache, zaak, sprawa, reclamacion, reclamation
        """,
}  # fmt: skip

# Signs and words of number, which turn a plain label into one: `order no. 12`, `case number is 12`.
NUMBERED: Final = frozenset(
    [
        "no",
        "nr",
        "num",
        "number",
        "numbers",
        "numero",
        "nro",
        "n",
        "#",
        "id",
        "nos",
        "nummer",
        "nr",
        "numer",
        "nomor",
        "номер",
        "számа",
        "numarasi",
        "code",
        "codigo",
        "号",
        "号码",
        "編號",
        "编号",
        "番号",
        "번호",
        "رقم",
        "संख्या",
        "नंबर",
        "شماره",
        "sayisi",
    ]
)
# Words that may stand between a label and its value.
BETWEEN: Final = frozenset(["is", "was", "are", "es", "ist", "est", "lautet"])
# Short codes that are written before the value, in capitals and of one piece with it: `MRN-293104`, `INV20331`.
PREFIXES: dict[bytes, Kind] = {
    b"MRN": "patient_id", b"NHC": "patient_id", b"PAT": "patient_id", b"PID": "patient_id", b"HPBN": "patient_id", b"MED": "patient_id",
    b"INV": "order_id", b"ORD": "order_id", b"ORDER": "order_id", b"PO": "order_id", b"TXN": "order_id", b"TRX": "order_id",
    b"CASE": "case_id", b"TKT": "case_id", b"TICKET": "case_id", b"CLM": "case_id", b"INC": "case_id", b"CLAIM": "case_id",
    b"CUST": "account_id", b"ACCT": "account_id", b"ACC": "account_id", b"POL": "account_id", b"CID": "account_id", b"CUS": "account_id",
    b"EMP": "employee_id", b"EMPID": "employee_id", b"STU": "employee_id", b"STAFF": "employee_id",
    b"DL": "driver_license", b"NPI": "license_id",
}  # fmt: skip
KINDS: tuple[Kind, ...] = tuple(_TABLE)
# Explicit by the table, and yet words of everyday that also stand before other numbers: plain.
_EVERYDAY = """
    chart, medicare, medicaid, accession, historia, historial, episodio, tarjeta sanitaria, afiliacion, kimlik, cedula, license,
    licence, licenses, bar, registration, certificate, certification, certificado, passport, passports, pasaporte, taxpayer,
    contribuinte, account, acct, bank account, current account, routing, membership, subscriber, policy, insurance, insurance
    policy, insurance code, loan, cuenta, cuenta bancaria, cuenta corriente, poliza, conta, apolice, compte, adherent, konto,
    polizza, personnel, payroll, badge, legajo, matricule, matricola, invoice, receipt, transaction, confirmation, booking,
    reservation, tracking, shipment, consignment, parcel, factura, fatura, commande, facture, rechnung, fattura, factuur, faktura,
    лицензия, заказ, заказа, счет, паспорт, паспорта, docket, autos, procedimiento, expediente, processo, protocolo, dossier,
    sinistre, pratica, fascicolo, дело, дела, заявка, обращение, account id, run, fin, ine, pan, sin, kenmerk, siniestro, medical
    record, health record, identity card, id card, national id, purchase order, work order, sales order, delivery note, vat, gst,
    federal tax, nota fiscal, insee, secu, cip, az, gz, dl, sns, cns, perso nr, quote no, patient file, medical file, health plan
"""
_SIGNS = re.compile(
    "[\\x00-\\x22\\x24-\\x2f\\x3a-\\x40\\x5b-\\x60\\x7b-\\xbf\u2000-\u206f\u3000-\u3003\u3008-\u301f\uff01-\uff0f\uff1a-\uff20]+"
)
_OF_NUMBER = re.compile("№|[Nn][º°]")
_CAMEL = re.compile("(?<=[a-z])(?=[A-Z][a-z])")
_SAME = str.maketrans({"#": " # ", "º": " ", "ª": " ", "ß": "ss", "ø": "o", "ł": "l", "đ": "d", "ı": "i"})
_MARKS = re.compile("[\u0300-\u036f]")
MAX_WORDS: Final = 5


_ASCII = str.maketrans(
    {chr(code): " " for code in range(128) if not chr(code).isalnum()}
    | {chr(c): chr(c + 32) for c in range(65, 91)}
    | {"#": " # "}
)


def fold(text: str) -> tuple[str, ...]:
    """The words of a text in small letters, without accents and punctuation; `№` as `no`, `#` as a word of its own."""
    if not text.islower():
        text = _CAMEL.sub(" ", text)
    if text.isascii():
        return tuple(text.translate(_ASCII).split())
    text = _OF_NUMBER.sub(" no ", text).lower().translate(_SAME)
    text = unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", text)))
    return tuple(_SIGNS.sub(" ", text).split())


def _labels() -> dict[tuple[str, ...], tuple[Kind, bool]]:
    """Words of a label -> its kind, and whether it is explicit."""
    table: dict[tuple[str, ...], tuple[Kind, bool]] = {}
    everyday = {fold(label.strip()) for label in _EVERYDAY.split(",")}
    for kind, text in _TABLE.items():
        explicit, _, plain = text.partition("|")
        for column, sure in ((explicit, True), (plain, False)):
            for label in column.split(","):
                words = fold(label.strip())
                if words:
                    table.setdefault(words, (kind, sure and words not in everyday))
    return table


LABELS = _labels()
